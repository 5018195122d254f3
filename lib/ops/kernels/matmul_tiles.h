// GEMM with float accumulation, for vectors of 16, 8 or 4 floats (vectors_avx512.h, vectors_avx2.h, vectors_neon.h). A
// tile of at most kBlock x kPanel sums, which fill the registers, stays there over up to kMatmulDepth lanes of the
// inner dimension; a deeper one is cut into nearly equal parts, added to `out` one after the other. So the order of
// additions depends on the inner dimension alone, not on how rows and columns are divided. Operands are packed into
// 32-bit lanes: one number as a float, or two bfloat16 that are neighbours in the inner dimension. Who packs what, and
// when, is decided in tiled_matmul.cpp.
//
// A class `Lane` defines the contents of a lane (matmul_float.cpp, matmul_bfloat16.cpp):
//   Number, kNumbers             the element type, and how many are in a lane
//   multiply_add(a, b, sums)     sums + a b
//   load(x, count)               a vector of lanes from `count` contiguous numbers, zero-padded
//   load_strided(x, stride, rows, columns)
//                                one lane for each of `columns` columns (at most kLanes), holding the first kNumbers of
//                                the rows x, x + stride, ...; `rows` of them exist
//   store_rounded(to, there, sums)
//                                the sums `there`, rounded to Number
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ops/kernels/kernels.h"
#include "ops/kernels/transpose.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

/// Sums fill the registers: 28 of 32, or 12 of 16, beside two vectors of the panel and one number of the block.
constexpr std::int64_t kBlock = kLanes == 8 ? 6 : 14, kPanel = 2 * kLanes;
/// Size, in floats, of the part of the shared operand that a core keeps in its L2 cache while it streams the other
/// operand past it. Processors with no more than AVX2 have smaller ones (256 or 512 KiB) than those with AVX-512 and
/// Arm's (1 or 2 MiB).
constexpr std::int64_t kHeld = (kLanes == 8 ? 32 : 128) * 1024;
/// A cache line, in floats and in bytes.
constexpr std::int64_t kLineFloats = 16, kLine = 64;

template <class Lane>
using NumberOf = typename Lane::Number;
template <class Lane>
using MatrixOf = MatrixView<NumberOf<Lane>>;

template <class Lane>
std::int64_t lanes_for(std::int64_t numbers) {
  return (numbers + Lane::kNumbers - 1) / Lane::kNumbers;
}

/// Packs rows of x, transposing: out[i * step + r] = lane i of row r, for `rows` (1 to kLanes) rows of `inner` numbers.
/// Every store writes kLanes lanes: those beyond `rows`, which no sum that is stored reads, repeat the last row (a
/// branch for each of them would have the compiler copy all of this several times).
template <class Lane>
void pack_transposed(const NumberOf<Lane>* x, std::int64_t stride, std::int64_t rows, std::int64_t inner, float* out,
                     std::int64_t step) {
  for (std::int64_t i = 0, n = lanes_for<Lane>(inner); i < n; i += kLanes, out += kLanes * step) {
    const auto left = inner - i * Lane::kNumbers;
    Square square;
#pragma GCC unroll 16
    for (std::int64_t r = 0; r < kLanes; ++r)
      square[r] = Lane::load(x + std::min(r, rows - 1) * stride + i * Lane::kNumbers, left);
    transpose(square);
    if (n - i >= kLanes) {
#pragma GCC unroll 16
      for (std::int64_t r = 0; r < kLanes; ++r) store(out + r * step, square[r]);
    } else {
      for (std::int64_t r = 0; r < n - i; ++r) store(out + r * step, square[r]);
    }
  }
}

/// Packs columns of x: out[i * step + r] = lane i of column r, for `columns` columns of `inner` numbers; every store
/// writes kLanes lanes.
template <class Lane>
void pack_direct(const NumberOf<Lane>* x, std::int64_t stride, std::int64_t columns, std::int64_t inner, float* out,
                 std::int64_t step) {
  for (std::int64_t i = 0; i < inner; i += Lane::kNumbers, x += Lane::kNumbers * stride, out += step)
    store(out, Lane::load_strided(x, stride, inner - i, columns));
}

/// Packs `count` rows of a matrix, from `first` on, into a block for tiles, a vector of rows at a time: the last one
/// first, because what its stores write beyond `count` is where the next line's first rows go.
template <class Lane>
void pack_rows(const MatrixOf<Lane>& a, std::int64_t first, std::int64_t count, std::int64_t inner, float* out) {
  for (auto row = (count - 1) / kLanes * kLanes; row >= 0; row -= kLanes) {
    const auto rows = std::min(kLanes, count - row);
    if (a.transposed)
      pack_direct<Lane>(a.data + first + row, a.stride, rows, inner, out + row, count);
    else
      pack_transposed<Lane>(a.data + (first + row) * a.stride, a.stride, rows, inner, out + row, count);
  }
}

/// Packs the panel of kPanel columns from `first` on, of which `count` exist.
template <class Lane>
void pack_panel(const MatrixOf<Lane>& b, std::int64_t first, std::int64_t count, std::int64_t inner, float* out) {
  for (std::int64_t half = 0; half < kPanel; half += kLanes)
    if (b.transposed) {
      const auto begin = std::min(half, count - 1);
      pack_transposed<Lane>(b.data + (first + begin) * b.stride, b.stride, std::min(kLanes, count - begin), inner,
                            out + half, kPanel);
    } else {
      pack_direct<Lane>(b.data + first + half, b.stride, count - half, inner, out + half, kPanel);
    }
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

/// Stores (`fresh`) or adds the sums of the columns `there`, or rounds them.
template <class Lane>
inline void put(float* to, Lanes there, bool fresh, Floats sums) {
  if (!fresh) sums += load(to, there);
  store(to, there, sums);
}
template <class Lane>
inline void put(NumberOf<Lane>* to, Lanes there, bool /*fresh*/,
                Floats sums) requires(!std::is_same_v<NumberOf<Lane>, float>) {
  Lane::store_rounded(to, there, sums);
}

/// Micro-kernel: a is a packed block [n, kRows], b a packed panel [n, kPanel].
template <class Lane, class Out, int kRows>
void tile(const float* a, const float* b, std::int64_t n, const Tile<Lane, Out>& at) {
  Out* line = at.out;
#pragma GCC unroll 1
  for (int r = 0; r < kRows; ++r, line += at.stride) {
    __builtin_prefetch(line);
    if (sizeof(Out) == sizeof(float)) __builtin_prefetch(line + kLanes);
  }
  Floats left[kRows], right[kRows];
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) left[r] = right[r] = zeros();
  const auto step = [&](const float* rows, const float* columns) __attribute__((always_inline)) {
    const auto first = load(columns), second = load(columns + kLanes);
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const auto x = broadcast(rows[r]);
      left[r] = Lane::multiply_add(x, first, left[r]);
      right[r] = Lane::multiply_add(x, second, right[r]);
    }
  };
  const char* ahead = at.ahead.first;
  std::int64_t i = n;
  for (; i >= 8; i -= 8, a += 8 * kRows, b += 8 * kPanel, ahead += at.ahead.step) {
    __builtin_prefetch(ahead, 0, 2);  // into L2
    __builtin_prefetch(ahead + at.ahead.second, 0, 2);
#pragma GCC unroll 8
    for (int u = 0; u < 8; ++u) step(a + u * kRows, b + u * kPanel);
  }
#pragma GCC unroll 1
  for (; i > 0; --i, a += kRows, b += kPanel) step(a, b);
  const auto first = lanes(at.columns), second = lanes(at.columns - kLanes);
  line = at.out;
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r, line += at.stride) {
    put<Lane>(line, first, at.fresh, left[r]);
    put<Lane>(line + kLanes, second, at.fresh, right[r]);
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

/// Row blocks whose tiles together prefetch a panel.
constexpr std::int64_t kPanelTiles = kPanel / 4;

/// What the tile of row block `i` prefetches of the panel from column `first` on, before it is packed: the first
/// kPanelTiles blocks together cover all of it (of panels of 8 columns a half or a quarter of the rows).
template <class Lane>
Ahead ahead_of_panel(const MatrixOf<Lane>& b, std::int64_t first, std::int64_t i) {
  constexpr std::int64_t kSize = sizeof(NumberOf<Lane>);
  const auto row = b.stride * kSize;
  const auto* data = reinterpret_cast<const char*>(b.data);
  if (b.transposed) return {data + (first + 4 * i) * row, kLine, 2 * kLine};
  constexpr std::int64_t kRows = 8 * Lane::kNumbers / kPanelTiles;  // of `b` per tile and 8 steps, in two cache lines
  return {data + first * kSize + i * kRows * row, kRows == 1 ? kLine : row, 8 * Lane::kNumbers * row};
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
  return {reinterpret_cast<const char*>(packed + i * (n / 8) * 2 * kLineFloats), kLine, 2 * kLine};
}

/// Floats between packed blocks of n lanes: the stores of the last line write kLanes.
inline std::int64_t room(std::int64_t n) {
  return (kBlock * n + 2 * kLineFloats - 1) / kLineFloats * kLineFloats;
}

/// Packs blocks `from` to `to` - 1 of `a`; each gets room(n) floats.
template <class Lane>
void pack_blocks(const MatrixOf<Lane>& a, std::int64_t rows, std::int64_t inner, std::int64_t from, std::int64_t to,
                 float* out) {
  const auto n = lanes_for<Lane>(inner), blocks = parts(rows, kBlock);
  for (auto i = from; i < to; ++i) {
    const auto [first, size] = part(rows, blocks, i);
    pack_rows<Lane>(a, first, size, inner, out + i * room(n));
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
        const auto ahead = !more || i >= kPanelTiles ? nowhere(buffer)
                           : g == 0                  ? ahead_of_panel<Lane>(b, j + kPanel, i)
                                                     : ahead_of_packed(panel + kPanel * n, n, i);
        run_tile<Lane, Out>(size, a + (begin + i) * room(n), panel, n,
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
      float* const block = again ? buffer + i * room(n) : buffer;
      const auto next = i + 1 < blocks ? part(rows, blocks, i + 1) : Part{0, 0};
      if (strip == 0) pack_rows<Lane>(a, first, size, inner, block);
      const auto last = std::min(columns, strip + wide);
      for (auto j = strip; j < last; j += kPanel) {
        const auto place = (j - strip) / kPanel;
        const auto ahead = next.size == 0 ? nowhere(buffer)
                           : strip == 0   ? ahead_of_block<Lane>(a, next.first, next.size, inner, n, place, buffer)
                           : place < 4    ? ahead_of_packed(block + room(n), n, place)
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
          .block = kBlock,
          .panel = kPanel,
          .room = room,
          .pack_rows = pack_blocks<Lane>,
          .pack_columns = pack_panels<Lane>,
          .sum = {stream_panels<Lane, float>, stream_blocks<Lane, float>},
          .rounded = {stream_panels<Lane, T>, stream_blocks<Lane, T>}};
}

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
