// Fused CPU loops, compiled once per instruction set and selected at run time. All pointers are to contiguous data
// unless a stride is given; T is float, double or c10::BFloat16; sums are accumulated in float (double for double).
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

#include "ops/kernels/settings.h"

namespace automodel::ops {

/// The type that a kernel computes in.
template <class T>
struct Compute {
  using type = float;
};
template <>
struct Compute<double> {
  using type = double;
};

template <class T>
struct NormKernels {
  using C = typename Compute<T>::type;
  /// sum = x + delta (if delta is not null; else x is normed and sum is not written); y = sum / rms(sum) * (offset +
  /// weight). rstd [rows].
  void (*forward)(const T* x, const T* delta, const T* weight, T* sum, T* y, C* rstd, std::int64_t rows,
                  std::int64_t columns, double eps, double offset);
  /// dx = dsum (unless null) + the norm's input gradient; dweight [columns] += the weight's gradient, in C.
  void (*backward)(const T* dy, const T* dsum, const T* x, const T* weight, const C* rstd, T* dx, C* dweight,
                   std::int64_t rows, std::int64_t columns, double offset);
};

template <class T>
struct RopeKernels {
  using C = typename Compute<T>::type;
  /// Rotates heads in place: x[row, head] has `width` elements in pairs (i, i + width/2); row r uses row position[r] of
  /// cos and sin. `sign` -1 rotates back (the gradient).
  void (*rotate)(T* x, std::int64_t row_stride, std::int64_t head_stride, const C* cos, const C* sin,
                 const std::int64_t* position, std::int64_t rows, std::int64_t heads, std::int64_t width, double sign);
  /// The same for pairs (2 i, 2 i + 1).
  void (*rotate_neighbours)(T* x, std::int64_t row_stride, std::int64_t head_stride, const C* cos, const C* sin,
                            const std::int64_t* position, std::int64_t rows, std::int64_t heads, std::int64_t width,
                            double sign);
};

/// Maximum number of taps of a short convolution.
inline constexpr std::int64_t kConvTaps = 8;
/// One sequence x[row, channel] (rows `stride` elements apart) and a causal depthwise convolution.
template <class T>
struct ConvInput {
  using C = typename Compute<T>::type;
  const T* x;
  std::int64_t stride, channels, taps;
  const C* weight;            ///< [taps, channels]; the last tap is for the token itself
  const C* bias;              ///< [channels], or null
  const std::int32_t* reach;  ///< per row: how many preceding rows contribute; below `taps`
  bool silu;                  ///< apply SiLU to the sum
};
template <class T>
struct ConvKernels {
  using C = typename Compute<T>::type;
  /// Computes y [rows, channels] for rows first to last - 1.
  void (*forward)(const ConvInput<T>& in, T* y, std::int64_t first, std::int64_t last);
  /// For the `width` channels (at most kConvChannels) from `from` on: writes dx [rows, channels] and accumulates
  /// dweight [taps, channels] and dbias [channels]. dy [rows, channels].
  void (*backward)(const ConvInput<T>& in, const T* dy, T* dx, C* dweight, C* dbias, std::int64_t rows,
                   std::int64_t from, std::int64_t width);
};
inline constexpr std::int64_t kConvChannels = 256;

template <class T>
struct GateKernels {
  /// out[r, c] = act(gate[r, c]) * up[r, c]; each row of x [rows, 2 columns] is gate, then up.
  void (*forward)(const T* x, T* out, std::int64_t rows, std::int64_t columns, Gate gate);
  /// dx [rows, 2 columns] from dout [rows, columns].
  void (*backward)(const T* dout, const T* x, T* dx, std::int64_t rows, std::int64_t columns, Gate gate);
};

template <class T>
struct CrossEntropyKernels {
  using C = typename Compute<T>::type;
  /// Cross-entropy of logits [rows, columns] against labels; rows with label == ignore do not count. Returns the sum
  /// over rows. With `gradient`, logits become scale * (softmax - onehot), zero in ignored rows.
  double (*run)(T* logits, const std::int64_t* labels, std::int64_t rows, std::int64_t columns, std::int64_t ignore,
                double scale, bool gradient);
  /// For the part of the vocabulary that begins at token `first`, rows `stride` elements apart: out [rows, 3] gets each
  /// row's largest logit, the sum of exp(x - largest), and the label's logit (0 if it is in another part).
  void (*statistics)(const T* logits, std::int64_t stride, const std::int64_t* labels, std::int64_t rows,
                     std::int64_t columns, std::int64_t first, C* out);
  /// Overwrites the logits of such a part with exp(x - largest) * factor - scale * onehot; shares [rows, 2] holds
  /// largest and factor of each row (factor 0: the whole row becomes 0). Columns from `columns` to `stride` become 0.
  void (*gradient)(T* logits, std::int64_t stride, const std::int64_t* labels, std::int64_t rows, std::int64_t columns,
                   std::int64_t first, const C* shares, double scale);
};

/// Running state of a query's online softmax over the keys so far.
struct SoftmaxRow {
  float largest, sum;  ///< the largest scaled score; the sum of exp(score - largest)
};
/// Work on one query between the GEMMs of attention (host_tiles.cpp); scores are float, `n` is the number of keys.
template <class T>
struct AttentionKernels {
  /// weights = exp(scale * scores - largest); updates `row` with these keys. Returns the factor by which sums over
  /// earlier keys must be rescaled.
  float (*weights)(const float* scores, float scale, SoftmaxRow& row, T* weights, std::int64_t n);
  /// weights = exp(scale * scores - logsum), dscores = scale * weights * (dweights - out_dot_dout), where
  /// `out_dot_dout` is the dot product of the query's output and its gradient.
  void (*gradient)(const float* scores, const float* dweights, float scale, float logsum, float out_dot_dout,
                   T* weights, T* dscores, std::int64_t n);
  float (*dot)(const T* a, const T* b, std::int64_t n);
  void (*narrow)(const float* x, float factor, T* out, std::int64_t n);  ///< out = x * factor, rounded to T
  void (*scale)(float* x, float factor, std::int64_t n);
};

/// An output matrix, row-major with leading dimension `stride` (in elements).
template <class T>
struct OutputMatrix {
  T* data;
  std::int64_t stride;
};
/// An input matrix, row-major with leading dimension `stride` (in elements), or, `transposed`, the transpose of such a
/// matrix.
template <class T>
struct MatrixView {
  const T* data;
  std::int64_t stride;
  bool transposed = false;
};
/// GEMMs are made of tiles of at most `block` rows and `panel` columns that add up at most kMatmulDepth lanes of the
/// inner dimension. A lane holds 32 bits: `numbers` elements.
inline constexpr std::int64_t kMatmulDepth = 1024;
/// Packs blocks of rows, or panels of columns, `from` to `to` - 1 of x, which has `size` rows or columns. `out` is
/// where the first one goes, aligned to 64 bytes.
template <class T>
using PackMatrix = void (*)(const MatrixView<T>& x, std::int64_t size, std::int64_t inner, std::int64_t from,
                            std::int64_t to, float* out);
/// GEMM: out [rows, columns] = a [rows, inner] b [inner, columns], or += if not `fresh`. Sizes must be above 0, and
/// `inner` at most kMatmulDepth lanes. One operand is packed; the other one is packed on the way, into a buffer with
/// room for all of it. If T is not float and Out is, sums are not rounded; if Out is not float: requires `fresh`.
template <class T, class Out>
struct TiledMatmul {
  void (*stream_columns)(OutputMatrix<Out> out, bool fresh, const float* a, const MatrixView<T>& b, std::int64_t rows,
                         std::int64_t inner, std::int64_t columns, float* buffer) = nullptr;
  void (*stream_rows)(OutputMatrix<Out> out, bool fresh, const MatrixView<T>& a, const float* b, std::int64_t rows,
                      std::int64_t inner, std::int64_t columns, float* buffer) = nullptr;
};
/// Null where there are none for this processor.
template <class T>
struct MatmulKernels {
  std::int64_t numbers = 1, block = 1, panel = 1;
  /// Floats between packed blocks of `lanes` lanes.
  std::int64_t (*room)(std::int64_t lanes) = nullptr;
  PackMatrix<T> pack_rows = nullptr, pack_columns = nullptr;
  TiledMatmul<T, float> sum = {};
  TiledMatmul<T, T> rounded = {};
};

template <class T>
struct OptimizerKernels {
  /// One step over n elements. max_square null: no amsgrad.
  void (*adam)(T* value, const T* gradient, T* mean, T* square, T* max_square, std::int64_t n, const AdamStep& step);
  double (*sum_of_squares)(const T* x, std::int64_t n);
};

struct Kernels {
  NormKernels<float> norm_float;
  NormKernels<double> norm_double;
  NormKernels<c10::BFloat16> norm_bfloat16;
  RopeKernels<float> rope_float;
  RopeKernels<double> rope_double;
  RopeKernels<c10::BFloat16> rope_bfloat16;
  GateKernels<float> gate_float;
  GateKernels<double> gate_double;
  GateKernels<c10::BFloat16> gate_bfloat16;
  ConvKernels<float> conv_float;
  ConvKernels<double> conv_double;
  ConvKernels<c10::BFloat16> conv_bfloat16;
  CrossEntropyKernels<float> cross_entropy_float;
  CrossEntropyKernels<double> cross_entropy_double;
  CrossEntropyKernels<c10::BFloat16> cross_entropy_bfloat16;
  AttentionKernels<float> attention_float;
  AttentionKernels<c10::BFloat16> attention_bfloat16;
  MatmulKernels<float> matmul_float;
  MatmulKernels<c10::BFloat16> matmul_bfloat16;
  OptimizerKernels<float> optimizer_float;
  OptimizerKernels<double> optimizer_double;
  const char* instruction_set;
};

/// The table for this CPU.
const Kernels& kernels();

}  // namespace automodel::ops
