// Rotary position embedding in place: one thread per pack of adjacent pairs, loaded and stored 16 bytes at once.
#include "ops/kernels/cuda/device.h"

namespace automodel::ops::cuda {
namespace {

template <class T>
struct Rows {
  T* x;
  std::int64_t row_stride, head_stride;
  const Compute<T>*cos, *sin;  ///< [positions, half]
  const std::int64_t* position;
  std::int64_t packs;                   ///< of all rows
  std::uint32_t of_row, of_head, half;  ///< packs of a row, of a head; pairs of a head
  Compute<T> sign;
};

/// With `neighbours` a pair is two adjacent elements, else the same element of a head's two halves. A pack is N
/// adjacent elements, N / 2 pairs, in the first case, and N elements of either half in the second; N = 1 is a single
/// pair.
template <class T, int N, bool neighbours>
__global__ void rotate_packs(Rows<T> in) {
  using C = Compute<T>;
  constexpr int kPairs = neighbours && N > 1 ? N / 2 : N;
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= in.packs) return;
  const std::int64_t row = pack / in.of_row;
  const auto rest = static_cast<std::uint32_t>(pack - row * in.of_row);  // 32-bit divisions from here on
  const std::uint32_t head = rest / in.of_head, pair = (rest - head * in.of_head) * kPairs;
  const std::int64_t angle = in.position[row] * in.half + pair;
  const auto cosine = read<kPairs>(in.cos + angle), sine = read<kPairs>(in.sin + angle);
  T* at = in.x + row * in.row_stride + head * in.head_stride;
  if constexpr (neighbours && N > 1) {
    at += 2 * pair;
    auto both = read<N>(at);
    for (int i = 0; i < kPairs; ++i) {
      const C a = widen(both.at[2 * i]), b = widen(both.at[2 * i + 1]), s = in.sign * sine.at[i];
      both.at[2 * i] = narrow<T>(a * cosine.at[i] - b * s);
      both.at[2 * i + 1] = narrow<T>(b * cosine.at[i] + a * s);
    }
    write<N>(at, both);
  } else {
    T* first = at + (neighbours ? 2 * pair : pair);
    T* second = first + (neighbours ? 1 : in.half);
    auto left = read<N>(first), right = read<N>(second);
    for (int i = 0; i < N; ++i) {
      const C a = widen(left.at[i]), b = widen(right.at[i]), s = in.sign * sine.at[i];
      left.at[i] = narrow<T>(a * cosine.at[i] - b * s);
      right.at[i] = narrow<T>(b * cosine.at[i] + a * s);
    }
    write<N>(first, left);
    write<N>(second, right);
  }
}

template <class T, int N, bool neighbours>
void rotate_with(const Rope& rope, Stream stream) {
  using C = Compute<T>;
  const std::int64_t half = rope.width / 2, of_head = half / (neighbours && N > 1 ? N / 2 : N);
  const Rows<T> in{.x = static_cast<T*>(rope.x),
                   .row_stride = rope.row_stride,
                   .head_stride = rope.head_stride,
                   .cos = static_cast<const C*>(rope.cos),
                   .sin = static_cast<const C*>(rope.sin),
                   .position = rope.position,
                   .packs = rope.rows * rope.heads * of_head,
                   .of_row = static_cast<std::uint32_t>(rope.heads * of_head),
                   .of_head = static_cast<std::uint32_t>(of_head),
                   .half = static_cast<std::uint32_t>(half),
                   .sign = static_cast<C>(rope.sign)};
  launch(rotate_packs<T, N, neighbours>, divided_up(in.packs, kThreads), 0, stream, in);
}

/// Whether rows, heads, halves and angles all begin at multiples of a pack of `wide` elements. Angles have the compute
/// type, so that those of a pack of bfloat16 are 32 bytes.
bool in_packs(const Rope& rope, std::int64_t wide, std::size_t angle_bytes) {
  return rope.width / 2 % wide == 0 && rope.row_stride % wide == 0 && rope.head_stride % wide == 0 &&
         begins_at_multiple(rope.x, 16) && begins_at_multiple(rope.cos, angle_bytes) &&
         begins_at_multiple(rope.sin, angle_bytes);
}

}  // namespace

void rope(Element element, const Rope& rope, Stream stream) {
  for_element(element, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    constexpr int kWide = 16 / sizeof(T);
    const bool wide = in_packs(rope, kWide, kWide * sizeof(Compute<T>));
    if (rope.neighbours)
      wide ? rotate_with<T, kWide, true>(rope, stream) : rotate_with<T, 1, true>(rope, stream);
    else
      wide ? rotate_with<T, kWide, false>(rope, stream) : rotate_with<T, 1, false>(rope, stream);
  });
}

}  // namespace automodel::ops::cuda
