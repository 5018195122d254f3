// Products of float matrices beside weights that no cache holds: the forward product and the weight gradient of a
// linear layer, for AVX-512. A tile of at most 14 x 32 sums stays in registers over the whole inner dimension, so that
// each sum has the same order of additions however rows and columns are divided.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <immintrin.h>

#include "ops/kernels/kernels.h"

namespace automodel::ops::avx512 {
namespace {

constexpr std::int64_t kLanes = 16, kBlock = 14, kPanel = 2 * kLanes, kDepth = 1024;
/// Floats of an operand that is laid out for all tiles; the other one is by block or by panel.
constexpr std::int64_t kHeld = kProductRoom - kPanel * kDepth;
static_assert(kBlock * kDepth + kLanes <= kPanel * kDepth && kHeld > kPanel * kDepth + kLanes);

inline __mmask16 lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffff : count <= 0 ? 0 : (1U << count) - 1U);
}

using Square = __m512[16];  // NOLINT(modernize-avoid-c-arrays): std::array takes the type without its attributes

/// Transposes 16 rows of 16: 32-bit, 64-bit, then 128-bit parts.
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

/// out[i * step + r] = x[r * distance + i] for `rows` (at most 16) and i < n; the lanes up to 16 behind each row of
/// `out` are overwritten with zeros, those of the last one too.
inline void lay_turned(const float* x, std::int64_t distance, std::int64_t rows, std::int64_t n, float* out,
                       std::int64_t step) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto there = lanes(n - i);
    Square square;
#pragma GCC unroll 16
    for (std::size_t r = 0; r < 16; ++r) {
      const auto row = static_cast<std::int64_t>(r);
      square[r] = row < rows ? _mm512_maskz_loadu_ps(there, x + row * distance + i) : _mm512_setzero_ps();
    }
    transpose(square);
    const auto count = static_cast<std::size_t>(std::min(kLanes, n - i));
#pragma GCC unroll 16
    for (std::size_t r = 0; r < 16; ++r, out += step)
      if (r < count) _mm512_storeu_ps(out, square[r]);
  }
}

/// out[i * step + r] = x[i * distance + r], with zeros behind as above.
inline void lay_straight(const float* x, std::int64_t distance, std::int64_t rows, std::int64_t n, float* out,
                         std::int64_t step) {
  const auto there = lanes(rows);
  for (std::int64_t i = 0; i < n; ++i, x += distance, out += step)
    _mm512_storeu_ps(out, _mm512_maskz_loadu_ps(there, x));
}

struct Tile {
  float* out;
  std::int64_t distance;
  std::int64_t columns;  ///< that exist, of kPanel
  bool fresh;
  /// What the next tiles read: two lines every 8 steps, `ahead_step` floats apart.
  const float* ahead;
  std::int64_t ahead_step;
};

/// a [n, kRows], b [n, kPanel].
template <int kRows>
void tile(const float* a, const float* b, std::int64_t n, const Tile& at) {
  float* line = at.out;
#pragma GCC unroll 1
  for (int r = 0; r < kRows; ++r, line += at.distance) {
    _mm_prefetch(line, _MM_HINT_T0);
    _mm_prefetch(line + kLanes, _MM_HINT_T0);
  }
  __m512 left[kRows], right[kRows];
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) left[r] = right[r] = _mm512_setzero_ps();
  const auto step = [&](const float* rows, const float* columns) __attribute__((always_inline)) {
    const auto first = _mm512_load_ps(columns), second = _mm512_load_ps(columns + kLanes);
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const auto x = _mm512_set1_ps(rows[r]);
      left[r] = _mm512_fmadd_ps(x, first, left[r]);
      right[r] = _mm512_fmadd_ps(x, second, right[r]);
    }
  };
  const float* ahead = at.ahead;
  std::int64_t i = n;
  for (; i >= 8; i -= 8, a += 8 * kRows, b += 8 * kPanel, ahead += at.ahead_step) {
    _mm_prefetch(ahead, _MM_HINT_T1);
    _mm_prefetch(ahead + kLanes, _MM_HINT_T1);
#pragma GCC unroll 8
    for (int u = 0; u < 8; ++u) step(a + u * kRows, b + u * kPanel);
  }
#pragma GCC unroll 1
  for (; i > 0; --i, a += kRows, b += kPanel) step(a, b);
  const auto first = lanes(at.columns), second = lanes(at.columns - kLanes);
  line = at.out;
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r, line += at.distance) {
    if (!at.fresh) {
      left[r] = _mm512_add_ps(left[r], _mm512_maskz_loadu_ps(first, line));
      right[r] = _mm512_add_ps(right[r], _mm512_maskz_loadu_ps(second, line + kLanes));
    }
    _mm512_mask_storeu_ps(line, first, left[r]);
    _mm512_mask_storeu_ps(line + kLanes, second, right[r]);
  }
}

using RunTile = void (*)(const float*, const float*, std::int64_t, const Tile&);
template <std::size_t... kRows>
constexpr std::array<RunTile, sizeof...(kRows)> tiles_of(std::index_sequence<kRows...>) {
  return {tile<static_cast<int>(kRows) + 1>...};
}
/// By rows - 1.
constexpr auto kTiles = tiles_of(std::make_index_sequence<kBlock>());

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

inline void run_tile(std::int64_t rows, const float* a, const float* b, std::int64_t n, const Tile& at) {
  kTiles[static_cast<std::size_t>(rows - 1)](a, b, n, at);
}

/// Weights are laid out panel by panel; while the tiles of one are computed the next one comes from memory.
void forward_part(RowsOf<float> out, bool fresh, FloatRows x, FloatRows w, std::int64_t rows, std::int64_t n,
                  std::int64_t columns, float* room) {
  float* const panel = room;
  float* const held = room + kPanel * kDepth;
  const auto blocks = parts(rows, kBlock);
  for (std::int64_t i = 0; i < blocks; ++i) {
    const auto [first, size] = part(rows, blocks, i);
    lay_turned(x.data + first * x.distance, x.distance, size, n, held + first * n, size);
  }
  for (std::int64_t j = 0; j < columns; j += kPanel) {
    for (std::int64_t half = 0; half < kPanel; half += kLanes)
      lay_turned(w.data + (j + half) * w.distance, w.distance, std::min(kLanes, columns - j - half), n, panel + half,
                 kPanel);
    const float* next = j + kPanel < columns ? w.data + (j + kPanel) * w.distance : panel;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const auto [first, size] = part(rows, blocks, i);
      const bool ahead = next != panel && i < 8;  // 8 blocks ask for 4 weights each
      run_tile(size, held + first * n, panel, n,
               {.out = out.data + first * out.distance + j,
                .distance = out.distance,
                .columns = columns - j,
                .fresh = fresh,
                .ahead = ahead ? next + 4 * i * w.distance : panel,
                .ahead_step = ahead ? kPanel : 0});
    }
  }
}

void forward_product(RowsOf<float> out, FloatRows x, FloatRows w, std::int64_t rows, std::int64_t inner,
                     std::int64_t columns, float* room) {
  const auto depths = parts(inner, kDepth);
  for (std::int64_t d = 0; d < depths; ++d) {
    const auto [from, n] = part(inner, depths, d);
    const auto groups = parts(rows, (kHeld - kLanes) / n);
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto [first, size] = part(rows, groups, g);
      forward_part({out.data + first * out.distance, out.distance}, d == 0,
                   {x.data + first * x.distance + from, x.distance}, {w.data + from, w.distance}, size, n, columns,
                   room);
    }
  }
}

/// Tiles go along the rows of the gradient, which is read and written once.
void weight_part(RowsOf<float> out, bool fresh, FloatRows a, FloatRows b, std::int64_t rows, std::int64_t n,
                 std::int64_t columns, float* room) {
  float* const block = room;
  float* const held = room + kPanel * kDepth;
  for (std::int64_t j = 0; j < columns; j += kPanel)
    for (std::int64_t half = 0; half < kPanel; half += kLanes)
      lay_straight(b.data + j + half, b.distance, columns - j - half, n, held + j * n + half, kPanel);
  const auto blocks = parts(rows, kBlock);
  for (std::int64_t i = 0; i < blocks; ++i) {
    const auto [first, size] = part(rows, blocks, i);
    lay_straight(a.data + first, a.distance, size, n, block, size);
    for (std::int64_t j = 0; j < columns; j += kPanel)
      run_tile(size, block, held + j * n, n,
               {.out = out.data + first * out.distance + j,
                .distance = out.distance,
                .columns = columns - j,
                .fresh = fresh,
                .ahead = block,
                .ahead_step = 0});
  }
}

void weight_product(RowsOf<float> out, bool fresh, FloatRows a, FloatRows b, std::int64_t rows, std::int64_t inner,
                    std::int64_t columns, float* room) {
  const auto wide = kHeld / inner / kPanel * kPanel;
  for (std::int64_t j = 0; j < columns; j += wide)
    weight_part({out.data + j, out.distance}, fresh, a, {b.data + j, b.distance}, rows, inner,
                std::min(wide, columns - j), room);
}

}  // namespace

ProductKernels products();
ProductKernels products() {
  return {forward_product, weight_product};
}

}  // namespace automodel::ops::avx512
