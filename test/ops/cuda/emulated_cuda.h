// The part of CUDA C++ that our kernels use, on the CPU: what ops/kernels/cuda/device.h includes where nvcc is not the
// compiler. A block's threads are fibers that run in a random order until they wait for each other; blocks run in a
// random order one after another.
//
// Where the kernels are compiled with -fsanitize=thread, every access of theirs to memory is looked at before it
// happens (emulator.cpp): it must lie in a buffer that the test made (Buffer), in shared memory or on the thread's own
// stack; what is read must have been written; and two accesses to one place, of which one writes, must be of one thread
// or have a barrier between them. The first fault ends the launch, which throws Fault.
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

namespace emulated {

struct Index {
  unsigned x = 0;
};

/// What a kernel did wrong.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Whether accesses are looked at (true at first).
void watch(bool on);

/// Seeds the orders of threads and blocks from now on.
void seed(std::uint64_t seed);

/// Runs `start(arguments)` as every thread of every block; `size` bytes of arguments may be read.
void run(unsigned blocks, unsigned threads, std::size_t shared_bytes, void (*start)(const void*), const void* arguments,
         std::size_t size);
template <class Body>
void launch(unsigned blocks, unsigned threads, std::size_t shared_bytes, const Body& body) {
  run(
      blocks, threads, shared_bytes, [](const void* known) { (*static_cast<const Body*>(known))(); }, &body,
      sizeof(body));
}

// What a thread asks for.
Index thread();
Index block();
Index grid();
void block_barrier();
void warp_barrier();
/// What lane `source` of the warp brought; all 32 lanes take part.
std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source);
/// Bit l: whether lane l brought true.
unsigned ballot(unsigned mask, bool value);
void* dynamic_shared_bytes();
/// A fault where a pack of `size` bytes does not begin at a multiple of its size.
void must_be_multiple(const void* address, std::size_t size);
template <class C>
C* dynamic_shared() {
  return static_cast<C*>(dynamic_shared_bytes());
}

/// Makes bytes known to the checks; `written` says whether they may be read at once.
void add_buffer(void* bytes, std::size_t size, bool written);
void remove_buffer(void* bytes);

/// Memory of the device. Accesses beyond its borders are faults, as are reads of elements that nobody wrote.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::vector<T> values) : values_(std::move(values)) { add(true); }
  /// Not written yet; NaN for floating-point numbers where the checks are not compiled in.
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
/// To the nearest, ties to even.
inline __nv_bfloat16 __float2bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16)};
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
using std::log;
using std::sqrt;
using std::tanh;
