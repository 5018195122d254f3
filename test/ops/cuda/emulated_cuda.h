// The subset of CUDA C++ that our kernels use, on the CPU; ops/kernels/cuda/device.h includes it if the compiler is not
// nvcc. The threads of a block are fibers that run in random order until they wait for each other; blocks run one after
// another in random order.
//
// If the kernels are compiled with -fsanitize=thread, each of their memory accesses is checked before it happens
// (emulator.cpp): it must be inside a buffer of the test (Buffer), shared memory or the thread's own stack; memory must
// be written before it is read; and two accesses to the same location, of which one is a write, must be by the same
// thread or separated by a barrier. The first fault ends the launch, which throws Fault.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace emulated {

struct Index {
  unsigned x = 0;
};

/// An error of a kernel.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Turns the checks of accesses on or off (initially on).
void watch(bool on);

/// Seeds the random order of threads and blocks from now on.
void seed(std::uint64_t seed);

/// Calls `start(arguments)` in every thread of every block; the threads may read `size` bytes of arguments.
void run(unsigned blocks, unsigned threads, std::size_t shared_bytes, void (*start)(const void*), const void* arguments,
         std::size_t size);
template <class Body>
void launch(unsigned blocks, unsigned threads, std::size_t shared_bytes, const Body& body) {
  run(
      blocks, threads, shared_bytes, [](const void* known) { (*static_cast<const Body*>(known))(); }, &body,
      sizeof(body));
}

// Called by the threads of a kernel.
Index thread();
Index block();
Index grid();
void block_barrier();
void warp_barrier();
/// The `bits` of lane `source` of the warp. All 32 lanes must take part.
std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source);
/// Bit l: the `value` of lane l.
unsigned ballot(unsigned mask, bool value);
void* dynamic_shared_bytes();
/// Faults if `address`, where a vector access of `size` bytes begins, is not a multiple of `size`.
void must_be_multiple(const void* address, std::size_t size);
template <class C>
C* dynamic_shared() {
  return static_cast<C*>(dynamic_shared_bytes());
}

/// Registers memory with the checks. `written`: it is initialized and may be read.
void add_buffer(void* bytes, std::size_t size, bool written);
void remove_buffer(void* bytes);

/// Device memory. Out-of-bounds accesses and reads of uninitialized elements are faults.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::vector<T> values) : values_(std::move(values)) { add(true); }
  /// Uninitialized for the checks; floating-point elements are NaN, for builds without checks.
  explicit Buffer(std::size_t count) : values_(count) {
    std::memset(static_cast<void*>(values_.data()), 0xff, count * sizeof(T));
    add(false);
  }
  ~Buffer() { remove_buffer(values_.data()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* get() { return values_.data(); }
  const std::vector<T>& values() const { return values_; }

 private:
  void add(bool written) { add_buffer(values_.data(), values_.size() * sizeof(T), written); }
  std::vector<T> values_;
};

}  // namespace emulated

struct __nv_bfloat16 {
  std::uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
/// Rounds to nearest, ties to even.
inline __nv_bfloat16 __float2bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16)};
}

enum Saturation { __NV_SATFINITE };
enum Float8Kind { __NV_E4M3, __NV_E5M2 };
/// Rounds to nearest, ties to even; beyond the largest number to that number. From the definition of the types.
inline std::uint8_t __nv_cvt_float_to_fp8(float x, Saturation, Float8Kind kind) {
  const int mantissa = kind == __NV_E4M3 ? 3 : 2, least = kind == __NV_E4M3 ? -6 : -14;  // exponent of normal numbers
  const unsigned sign = std::signbit(x) ? 0x80U : 0U;
  if (x != x) return static_cast<std::uint8_t>(sign | 0x7fU);
  const float size = std::fmin(std::fabs(x), kind == __NV_E4M3 ? 448.0F : 57344.0F);
  int exponent = size > 0 ? std::ilogb(size) : least;
  if (exponent < least) exponent = least;
  const auto steps = static_cast<unsigned>(std::nearbyint(std::ldexp(size, mantissa - exponent)));
  // A number that rounds up to the next power of two carries into the exponent.
  return static_cast<std::uint8_t>(sign | ((static_cast<unsigned>(exponent - least) << mantissa) + steps));
}

/// Products and sums that are never contracted to a fused multiply-add.
inline float __fmul_rn(float a, float b) {
  const volatile float product = a * b;
  return product;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}

#define threadIdx (::emulated::thread())
#define blockIdx (::emulated::block())
#define gridDim (::emulated::grid())

inline void __syncthreads() {
  emulated::block_barrier();
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::bit_cast<T>(
      static_cast<Bits>(emulated::exchange(mask, std::bit_cast<Bits>(value), static_cast<unsigned>(source))));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int apart) {
  return __shfl_sync(mask, value, static_cast<int>((emulated::thread().x % 32) ^ static_cast<unsigned>(apart)));
}
inline unsigned __ballot_sync(unsigned mask, bool value) {
  return emulated::ballot(mask, value);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
using std::erf;
using std::exp;
using std::exp2;
using std::floor;
using std::log;
using std::log2;
using std::sqrt;
using std::tanh;
