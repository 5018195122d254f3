// Common parts of all kernels. They are CUDA C++ under nvcc; under g++ the tests supply an emulation (test/ops/cuda),
// and kernels may use no CUDA features beyond this header and that emulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#else
#include "emulated_cuda.h"
#endif

#include "ops/kernels/cuda/kernels.h"

namespace automodel::ops::cuda {

inline constexpr int kThreads = 256;  ///< threads per block
inline constexpr int kLanes = 32, kWarps = kThreads / kLanes;
inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr std::size_t kSharedBytes = 48 * 1024;  ///< shared memory available to a block without opting in

#ifdef __CUDACC__
/// The dynamic shared memory requested from launch().
template <class C>
__device__ inline C* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return reinterpret_cast<C*>(bytes);
}
__device__ inline void must_be_multiple(const void*, std::size_t) {}  // the hardware traps misaligned accesses
                                                                      // itself
#else
using emulated::dynamic_shared;
using emulated::must_be_multiple;
#endif

/// The type that a kernel computes in.
template <class T>
struct Arithmetic {
  using type = float;
};
template <>
struct Arithmetic<double> {
  using type = double;
};
template <class T>
using Compute = typename Arithmetic<T>::type;

__device__ inline float widen(float x) {
  return x;
}
__device__ inline double widen(double x) {
  return x;
}
__device__ inline float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <class T>
__device__ inline T narrow(Compute<T> x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16(x);
  else
    return x;
}

/// Adjacent elements that are read and written by one instruction.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};
template <int N, class T>
__device__ inline Pack<T, N> read(const T* from) {
  must_be_multiple(from, sizeof(Pack<T, N>));
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ inline void write(T* to, const Pack<T, N>& values) {
  must_be_multiple(to, sizeof(Pack<T, N>));
  *reinterpret_cast<Pack<T, N>*>(to) = values;
}

template <class C>
__device__ inline C warp_sum(C x) {
  for (int apart = kLanes / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(kAllLanes, x, apart);
  return x;
}

/// Block-wide sum, returned to all of its kThreads threads; the order of additions is fixed.
template <class C>
__device__ inline C block_sum(C x) {
  __shared__ C part[kWarps];
  x = warp_sum(x);
  if (threadIdx.x % kLanes == 0) part[threadIdx.x / kLanes] = x;
  __syncthreads();
  C total = 0;
  for (int warp = 0; warp < kWarps; ++warp) total += part[warp];
  __syncthreads();  // `part` is reused by the next call
  return total;
}

/// Sum over the team of adjacent threads that share a row, a warp or the block, returned to all of them.
template <int team, class C>
__device__ inline C team_sum(C x) {
  static_assert(team == kLanes || team == kThreads);
  if constexpr (team == kLanes)
    return warp_sum(x);
  else
    return block_sum(x);
}

// On the host.

/// Calls run with a null pointer to the element type.
template <class Run>
void for_element(Element element, const Run& run) {
  switch (element) {
    case Element::kFloat: return run(static_cast<float*>(nullptr));
    case Element::kDouble: return run(static_cast<double*>(nullptr));
    case Element::kBFloat16: return run(static_cast<__nv_bfloat16*>(nullptr));
  }
}

inline bool begins_at_multiple(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

/// Calls run(N) with N elements of T, as a constant: 16 bytes' worth if rows of `columns` elements and all pointers
/// allow packs of that size, else 1.
template <class T, class Run>
void for_width(std::int64_t columns, std::initializer_list<const void*> pointers, const Run& run) {
  constexpr int kWide = 16 / sizeof(T);
  bool wide = columns % kWide == 0;
  for (const void* each : pointers) wide = wide && begins_at_multiple(each, 16);
  if (wide)
    run(std::integral_constant<int, kWide>());
  else
    run(std::integral_constant<int, 1>());
}

inline std::int64_t divided_up(std::int64_t n, std::int64_t by) {
  return (n + by - 1) / by;
}

/// Launches a kernel with blocks of kThreads threads; does nothing for 0 blocks.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::int64_t blocks, std::size_t shared_bytes, Stream stream,
            Arguments... arguments) {
  if (blocks == 0) return;
#ifdef __CUDACC__
  kernel<<<static_cast<unsigned>(blocks), kThreads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(
      static_cast<Parameters>(arguments)...);
  started(static_cast<int>(cudaGetLastError()));
#else
  static_cast<void>(stream);
  emulated::launch(static_cast<unsigned>(blocks), kThreads, shared_bytes,
                   [=] { kernel(static_cast<Parameters>(arguments)...); });
#endif
}

}  // namespace automodel::ops::cuda
