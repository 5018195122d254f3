// Rotary position embedding in place: one block per row, whose threads loop over the pairs of all heads.
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

template <class T>
__global__ void rotate_row(T* x, std::int64_t row_stride, std::int64_t head_stride, const Compute<T>* cos,
                           const Compute<T>* sin, const std::int64_t* position, std::int64_t heads, std::int64_t half,
                           Compute<T> sign, bool neighbours) {
  using C = Compute<T>;
  const std::int64_t row = blockIdx.x;
  const C* cosine = cos + position[row] * half;
  const C* sine = sin + position[row] * half;
  const std::int64_t step = neighbours ? 2 : 1, apart = neighbours ? 1 : half;
  for (std::int64_t pair = threadIdx.x; pair < heads * half; pair += kThreads) {
    const std::int64_t head = pair / half, i = pair % half;
    T* first = x + row * row_stride + head * head_stride + step * i;
    T* second = first + apart;
    const C a = widen(*first), b = widen(*second), s = sign * sine[i];
    *first = narrow<T>(a * cosine[i] - b * s);
    *second = narrow<T>(b * cosine[i] + a * s);
  }
}

}  // namespace

void rope(Element element, const Rope& rope, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    launch(rotate_row<T>, rope.rows, 0, stream, static_cast<T*>(rope.x), rope.row_stride, rope.head_stride,
           static_cast<const C*>(rope.cos), static_cast<const C*>(rope.sin), rope.position, rope.heads, rope.width / 2,
           static_cast<C>(rope.sign), rope.neighbours);
  });
}

}  // namespace automodel::ops::cuda
