// GEMM with float accumulation for AVX-512. A tile of at most 14 x 32 sums stays in registers over up to kDepth lanes
// of the inner dimension; a deeper one is cut into nearly equal parts, added to `out` one after the other. So the order
// of additions depends on the inner dimension alone, not on how rows and columns are divided. Operands are packed into
// 32-bit lanes: one float, or two bfloat16 that are neighbours in the inner dimension. Who packs what, and when, is
// decided in tiled_matmul.cpp.
//
// A class `Lane` defines the contents of a lane (matmul_float.cpp, matmul_bfloat16.cpp):
//   Number, kNumbers             the element type, and how many are in a lane
//   multiply_add(a, b, sums)     sums + a b
//   load(x, count)               16 lanes from `count` contiguous numbers, zero-padded
//   load_strided(x, stride, rows, columns)
//                                one lane for each of `columns` columns (at most 16), holding the first kNumbers of the
//                                rows x, x + stride, ...; `rows` of them exist
//   rounded(sums)                16 sums rounded to 16-bit numbers
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <immintrin.h>

#include "ops/kernels/kernels.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

constexpr std::int64_t kLanes = 16, kBlock = kMatmulBlock, kPanel = kMatmulPanel, kDepth = kMatmulDepth;
static_assert(kPanel == 2 * kLanes);
/// Size, in floats, of the part of the shared operand that a core keeps in its L2 cache while it streams the other
/// operand past it.
constexpr std::int64_t kHeld = 128 * 1024;

inline __mmask16 lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffff : count <= 0 ? 0 : (1U << count) - 1U);
}

template <class Lane>
using NumberOf = typename Lane::Number;
template <class Lane>
using MatrixOf = MatrixView<NumberOf<Lane>>;

using Square = __m512[16];  // NOLINT(modernize-avoid-c-arrays): std::array takes the type without its attributes

/// Transposes 16 x 16 lanes in place, by shuffles of 32-bit, 64-bit, then 128-bit elements.
__attribute__((always_inline)) inline void transpose(Square& x) {
  Square t;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 16; i += 4) {
    const auto a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
    const auto c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
    x[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    x[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    x[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    x[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    x[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    x[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    x[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
    x[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

template <class Lane>
std::int64_t lanes_for(std::int64_t numbers) {
  return (numbers + Lane::kNumbers - 1) / Lane::kNumbers;
}

/// Packs rows of x, transposing: out[i * step + r] = lane i of row r, for `rows` (at most 16) rows of `inner` numbers.
/// Every store writes 16 lanes, so that zeros fill each packed line up to there, also past the end of the last line.
template <class Lane>
void pack_transposed(const NumberOf<Lane>* x, std::int64_t stride, std::int64_t rows, std::int64_t inner, float* out,
                     std::int64_t step) {
  for (std::int64_t i = 0, n = lanes_for<Lane>(inner); i < n; i += kLanes) {
    const auto left = inner - i * Lane::kNumbers;
    Square square;
#pragma GCC unroll 16
    for (std::size_t r = 0; r < 16; ++r) {
      const auto row = static_cast<std::int64_t>(r);
      square[r] = row < rows ? Lane::load(x + row * stride + i * Lane::kNumbers, left) : _mm512_setzero_ps();
    }
    transpose(square);
    const auto count = static_cast<std::size_t>(std::min(kLanes, n - i));
#pragma GCC unroll 16
    for (std::size_t r = 0; r < 16; ++r, out += step)
      if (r < count) _mm512_storeu_ps(out, square[r]);
  }
}

/// Packs columns of x: out[i * step + r] = lane i of column r, for `columns` columns of `inner` numbers; zero-padded as
/// above.
template <class Lane>
void pack_direct(const NumberOf<Lane>* x, std::int64_t stride, std::int64_t columns, std::int64_t inner, float* out,
                 std::int64_t step) {
  for (std::int64_t i = 0; i < inner; i += Lane::kNumbers, x += Lane::kNumbers * stride, out += step)
    _mm512_storeu_ps(out, Lane::load_strided(x, stride, inner - i, columns));
}

/// Packs `count` rows of a matrix, from `first` on, into a block for tiles.
template <class Lane>
void pack_rows(const MatrixOf<Lane>& a, std::int64_t first, std::int64_t count, std::int64_t inner, float* out) {
  if (a.transposed)
    pack_direct<Lane>(a.data + first, a.stride, count, inner, out, count);
  else
    pack_transposed<Lane>(a.data + first * a.stride, a.stride, count, inner, out, count);
}

/// Packs the panel of kPanel columns from `first` on, of which `count` exist.
template <class Lane>
void pack_panel(const MatrixOf<Lane>& b, std::int64_t first, std::int64_t count, std::int64_t inner, float* out) {
  for (std::int64_t half = 0; half < kPanel; half += kLanes)
    if (b.transposed)
      pack_transposed<Lane>(b.data + (first + half) * b.stride, b.stride, std::min(kLanes, count - half), inner,
                            out + half, kPanel);
    else
      pack_direct<Lane>(b.data + first + half, b.stride, count - half, inner, out + half, kPanel);
}

/// Prefetch cursor over what comes next: every 8 steps, a tile prefetches the cache lines at `first` and `first +
/// second`, then advances both by `step` bytes.
struct Ahead {
  const char* first;
  std::int64_t second = 0, step = 0;
};

template <class Lane, class Out>
struct Tile {
  Out* out;
  std::int64_t stride;
  std::int64_t columns;  ///< number that exist, of kPanel
  bool fresh;
  Ahead ahead;
};

/// Stores (`fresh`) or adds the sums of 16 columns, those selected by the mask `there`.
inline void put(float* to, __mmask16 there, bool fresh, __m512 sums) {
  if (!fresh) sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(there, to));
  _mm512_mask_storeu_ps(to, there, sums);
}
template <class Lane>
void put_rounded(NumberOf<Lane>* to, __mmask16 there, __m512 sums) {
  _mm256_mask_storeu_epi16(to, there, Lane::rounded(sums));
}

/// Micro-kernel: a is a packed block [n, kRows], b a packed panel [n, kPanel].
template <class Lane, class Out, int kRows>
void tile(const float* a, const float* b, std::int64_t n, const Tile<Lane, Out>& at) {
  Out* line = at.out;
#pragma GCC unroll 1
  for (int r = 0; r < kRows; ++r, line += at.stride) {
    _mm_prefetch(line, _MM_HINT_T0);
    if (sizeof(Out) == sizeof(float)) _mm_prefetch(line + kLanes, _MM_HINT_T0);
  }
  __m512 left[kRows], right[kRows];
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) left[r] = right[r] = _mm512_setzero_ps();
  const auto step = [&](const float* rows, const float* columns) __attribute__((always_inline)) {
    const auto first = _mm512_load_ps(columns), second = _mm512_load_ps(columns + kLanes);
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const auto x = _mm512_set1_ps(rows[r]);
      left[r] = Lane::multiply_add(x, first, left[r]);
      right[r] = Lane::multiply_add(x, second, right[r]);
    }
  };
  const char* ahead = at.ahead.first;
  std::int64_t i = n;
  for (; i >= 8; i -= 8, a += 8 * kRows, b += 8 * kPanel, ahead += at.ahead.step) {
    _mm_prefetch(ahead, _MM_HINT_T1);
    _mm_prefetch(ahead + at.ahead.second, _MM_HINT_T1);
#pragma GCC unroll 8
    for (int u = 0; u < 8; ++u) step(a + u * kRows, b + u * kPanel);
  }
#pragma GCC unroll 1
  for (; i > 0; --i, a += kRows, b += kPanel) step(a, b);
  const auto first = lanes(at.columns), second = lanes(at.columns - kLanes);
  line = at.out;
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r, line += at.stride) {
    if constexpr (std::is_same_v<Out, float>) {
      put(line, first, at.fresh, left[r]);
      put(line + kLanes, second, at.fresh, right[r]);
    } else {
      put_rounded<Lane>(line, first, left[r]);
      put_rounded<Lane>(line + kLanes, second, right[r]);
    }
  }
}

template <class Lane, class Out>
using RunTile = void (*)(const float*, const float*, std::int64_t, const Tile<Lane, Out>&);
template <class Lane, class Out, std::size_t... kRows>
constexpr std::array<RunTile<Lane, Out>, sizeof...(kRows)> tiles_of(std::index_sequence<kRows...>) {
  return {tile<Lane, Out, static_cast<int>(kRows) + 1>...};
}
/// Indexed by rows - 1.
template <class Lane, class Out>
constexpr auto kTiles = tiles_of<Lane, Out>(std::make_index_sequence<kBlock>());

/// One of `count` nearly equal parts of `whole`.
struct Part {
  std::int64_t first, size;
};
inline Part part(std::int64_t whole, std::int64_t count, std::int64_t index) {
  const auto first = whole * index / count;
  return {first, whole * (index + 1) / count - first};
}
inline std::int64_t parts(std::int64_t whole, std::int64_t most) {
  return (whole + most - 1) / most;
}

template <class Lane, class Out>
void run_tile(std::int64_t rows, const float* a, const float* b, std::int64_t n, const Tile<Lane, Out>& at) {
  kTiles<Lane, Out>[static_cast<std::size_t>(rows - 1)](a, b, n, at);
}

/// A cursor that stays where it is, so that the tile needs no branch.
inline Ahead nowhere(const float* somewhere) {
  return {reinterpret_cast<const char*>(somewhere)};
}

/// What the tile of row block `i` prefetches of the panel from column `first` on, before it is packed: the first 8
/// blocks together cover all of it.
template <class Lane>
Ahead ahead_of_panel(const MatrixOf<Lane>& b, std::int64_t first, std::int64_t i) {
  constexpr std::int64_t kSize = sizeof(NumberOf<Lane>), kLine = kLanes * Lane::kNumbers * kSize;
  const auto row = b.stride * kSize;
  const auto* data = reinterpret_cast<const char*>(b.data);
  if (b.transposed) return {data + (first + 4 * i) * row, kLine, 2 * kLine};
  return {data + first * kSize + i * Lane::kNumbers * row, Lane::kNumbers == 1 ? kLine : row, 8 * Lane::kNumbers * row};
}

/// What the tile of panel `j` prefetches of the next block of a transposed `a`, `count` columns from `first` on, before
/// it is packed: one cache line of each row, the one with the block's last number, because the line with its first
/// number came with the block before. The first tiles together cover all rows.
template <class Lane>
Ahead ahead_of_block(const MatrixOf<Lane>& a, std::int64_t first, std::int64_t count, std::int64_t inner,
                     std::int64_t n, std::int64_t j, const float* somewhere) {
  const auto lines = n / 8, row = 2 * lines * j;
  if (!a.transposed || row + 2 * lines > inner) return nowhere(somewhere);
  constexpr std::int64_t kSize = sizeof(NumberOf<Lane>);
  return {reinterpret_cast<const char*>(a.data + first + count - 1 + row * a.stride), lines * a.stride * kSize,
          a.stride * kSize};
}

/// What the `i`-th tile prefetches of a packed block or panel.
inline Ahead ahead_of_packed(const float* packed, std::int64_t n, std::int64_t i) {
  constexpr std::int64_t kLine = 64;
  return {reinterpret_cast<const char*>(packed + i * (n / 8) * 2 * kLanes), kLine, 2 * kLine};
}

/// Packs blocks `from` to `to` - 1 of `a`; each gets block_room(n) floats.
template <class Lane>
void pack_blocks(const MatrixOf<Lane>& a, std::int64_t rows, std::int64_t inner, std::int64_t from, std::int64_t to,
                 float* out) {
  const auto n = lanes_for<Lane>(inner), blocks = parts(rows, kBlock);
  for (auto i = from; i < to; ++i) {
    const auto [first, size] = part(rows, blocks, i);
    pack_rows<Lane>(a, first, size, inner, out + i * block_room(n));
  }
}

/// Packs panels `from` to `to` - 1 of `b`; each gets kPanel * n floats.
template <class Lane>
void pack_panels(const MatrixOf<Lane>& b, std::int64_t columns, std::int64_t inner, std::int64_t from, std::int64_t to,
                 float* out) {
  const auto n = lanes_for<Lane>(inner);
  for (auto j = from * kPanel; j < to * kPanel; j += kPanel) pack_panel<Lane>(b, j, columns - j, inner, out + j * n);
}

/// `a` is packed. Groups of its blocks stay in L2 while the panels of `b` pass by; the first group's tiles find each
/// panel as the caller left it, to be packed, and prefetch the next. With a single group, all panels share one buffer.
template <class Lane, class Out>
void stream_panels(OutputMatrix<Out> out, bool fresh, const float* a, const MatrixOf<Lane>& b, std::int64_t rows,
                   std::int64_t inner, std::int64_t columns, float* buffer) {
  const auto n = lanes_for<Lane>(inner), blocks = parts(rows, kBlock);
  const auto groups = parts(blocks, std::max<std::int64_t>(1, kHeld / (kBlock * n)));
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto [begin, count] = part(blocks, groups, g);
    for (std::int64_t j = 0; j < columns; j += kPanel) {
      float* const panel = groups > 1 ? buffer + j * n : buffer;
      if (g == 0) pack_panel<Lane>(b, j, columns - j, inner, panel);
      const bool more = j + kPanel < columns;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto [first, size] = part(rows, blocks, begin + i);
        const auto ahead = !more || i >= 8 ? nowhere(buffer)
                           : g == 0        ? ahead_of_panel<Lane>(b, j + kPanel, i)
                                           : ahead_of_packed(panel + kPanel * n, n, i);
        run_tile<Lane, Out>(size, a + (begin + i) * block_room(n), panel, n,
                            {out.data + first * out.stride + j, out.stride, columns - j, fresh, ahead});
      }
    }
  }
}

/// `b` is packed. Strips of its panels stay in L2 while the blocks of `a` pass by; tiles run along the rows of `out`,
/// which is the large operand of a weight gradient.
template <class Lane, class Out>
void stream_blocks(OutputMatrix<Out> out, bool fresh, const MatrixOf<Lane>& a, const float* b, std::int64_t rows,
                   std::int64_t inner, std::int64_t columns, float* buffer) {
  const auto n = lanes_for<Lane>(inner), blocks = parts(rows, kBlock);
  const auto wide = std::max<std::int64_t>(1, kHeld / (kPanel * n)) * kPanel;
  const bool again = wide < columns;
  for (std::int64_t strip = 0; strip < columns; strip += wide)
    for (std::int64_t i = 0; i < blocks; ++i) {
      const auto [first, size] = part(rows, blocks, i);
      float* const block = again ? buffer + i * block_room(n) : buffer;
      const auto next = i + 1 < blocks ? part(rows, blocks, i + 1) : Part{0, 0};
      if (strip == 0) pack_rows<Lane>(a, first, size, inner, block);
      const auto last = std::min(columns, strip + wide);
      for (auto j = strip; j < last; j += kPanel) {
        const auto place = (j - strip) / kPanel;
        const auto ahead = next.size == 0 ? nowhere(buffer)
                           : strip == 0   ? ahead_of_block<Lane>(a, next.first, next.size, inner, n, place, buffer)
                           : place < 4    ? ahead_of_packed(block + block_room(n), n, place)
                                          : nowhere(buffer);
        run_tile<Lane, Out>(size, block, b + j * n, n,
                            {out.data + first * out.stride + j, out.stride, columns - j, fresh, ahead});
      }
    }
}

/// What is generated for one type of lane.
template <class Lane>
MatmulKernels<NumberOf<Lane>> matmuls() {
  using T = NumberOf<Lane>;
  return {.numbers = Lane::kNumbers,
          .pack_rows = pack_blocks<Lane>,
          .pack_columns = pack_panels<Lane>,
          .sum = {stream_panels<Lane, float>, stream_blocks<Lane, float>},
          .rounded = {stream_panels<Lane, T>, stream_blocks<Lane, T>}};
}

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
