// The kernels for NVIDIA GPUs, each with the CPU loop that it must match (ops/kernels). Nothing here needs CUDA or
// LibTorch: pointers are to device memory, contiguous unless a stride is given, with elements of the type that
// `Element` names; sums are accumulated in float (double for double), the "compute type". Everything is launched on the
// stream and returns immediately. The order of additions depends only on sizes, so equal inputs give bitwise equal
// results.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ops/kernels/settings.h"

namespace automodel::ops::cuda {

enum class Element : std::int8_t { kFloat, kDouble, kBFloat16 };
using Stream = void*;  ///< a cudaStream_t

/// Throws Error (kEnvironment, id `cuda-failed`) unless `code`, a cudaError_t, is cudaSuccess.
void started(int code);

struct NormShape {
  std::int64_t rows, columns;
  bool centred;  ///< LayerNorm; else RMSNorm
  double eps, offset;
};
/// sum = x + delta (if delta is not null; else x is normed and sum is not written). RMSNorm: y = sum / rms(sum) *
/// (offset + weight); LayerNorm: y = (sum - mean) / deviation * (offset + weight) + bias, where weight and bias may be
/// null. rstd (and mean, for LayerNorm) [rows] in the compute type.
struct NormForward {
  const void *x, *delta, *weight, *bias;
  void *sum, *y, *mean, *rstd;
};
void norm_forward(Element element, const NormShape& shape, const NormForward& data, Stream stream);
/// dx = dsum (unless null) + the norm's input gradient. `dparameters` is null, or [kept, columns] in the compute type
/// for the weight's gradient and, if `kept` is 2, the bias's; `partial` is then scratch space for [norm_parts(rows),
/// kept, columns].
struct NormBackward {
  const void *dy, *dsum, *x, *weight, *mean, *rstd;
  void *dx, *partial, *dparameters;
  int kept;
};
std::int64_t norm_parts(std::int64_t rows);
void norm_backward(Element element, const NormShape& shape, const NormBackward& data, Stream stream);

/// Rotates heads in place: RopeKernels::rotate, or rotate_neighbours.
struct Rope {
  void* x;
  std::int64_t row_stride, head_stride, rows, heads, width;
  const void *cos, *sin;         ///< compute type
  const std::int64_t* position;  ///< of each row
  double sign;
  bool neighbours;
};
void rope(Element element, const Rope& rope, Stream stream);

/// GateKernels::forward and backward, and the same for paired gates.
void gate_forward(Element element, const void* x, void* out, std::int64_t rows, std::int64_t columns, Gate gate,
                  Stream stream);
void gate_backward(Element element, const void* dout, const void* x, void* dx, std::int64_t rows, std::int64_t columns,
                   Gate gate, Stream stream);
void paired_gate_forward(Element element, const void* x, void* out, std::int64_t rows, std::int64_t columns,
                         const PairedGate& gate, Stream stream);
void paired_gate_backward(Element element, const void* dout, const void* x, void* dx, std::int64_t rows,
                          std::int64_t columns, const PairedGate& gate, Stream stream);

/// Logits [rows, stride] of tokens first ... first + columns - 1 of a vocabulary. `cap` > 0: each logit x counts as cap
/// tanh(x / cap).
struct Logits {
  void* logits;
  std::int64_t stride, rows, columns, first;
  const std::int64_t* labels;
  double cap;
};
/// CrossEntropyKernels::run over a whole vocabulary; losses [rows], 0 where ignored. Gradients are multiplied by
/// `scale` and, unless it is null, by *factor.
void cross_entropy(Element element, const Logits& in, double* losses, std::int64_t ignore, double scale,
                   const double* factor, bool gradient, Stream stream);
/// CrossEntropyKernels::statistics and gradient; out [rows, 3] and shares [rows, 2] in the compute type.
void logit_statistics(Element element, const Logits& in, void* out, Stream stream);
void logit_gradient(Element element, const Logits& in, const void* shares, double scale, Stream stream);

/// Elements of one tensor that share learning rate and weight decay. value, mean, square and max_square (null: no
/// amsgrad) have one type, float or double; `copy`, unless null, receives the new value in bfloat16.
struct AdamPiece {
  void* value;
  const void* gradient;
  void *mean, *square, *max_square, *copy;
  std::int64_t count;
  double lr, weight_decay;
};
/// OptimizerKernels::adam over any number of pieces, in as few launches as the size of a launch's table allows.
/// `step.lr` and `step.weight_decay` are ignored.
void adam(Element element, Element gradient, std::span<const AdamPiece> pieces, const AdamStep& step, Stream stream);

struct SquaresPiece {
  const void* x;
  std::int64_t count;
};
/// out = the sum of squares of all pieces; `partial` is scratch space for square_parts(pieces) doubles.
std::int64_t square_parts(std::span<const SquaresPiece> pieces);
void sum_of_squares(Element element, std::span<const SquaresPiece> pieces, double* partial, double* out, Stream stream);

/// table[id] += the gradient's rows for that id, in token order; `sorted` holds the ids in ascending order (stable),
/// `order` their original positions. Ids outside the table and `padding` are skipped. `table` is the gradient's buffer:
/// float, double, or the element type of the incoming gradient.
struct EmbeddingRows {
  const void* gradient;  ///< [count, width]
  const std::int64_t *sorted, *order;
  std::int64_t count, width, table_rows, padding;
  void* table;  ///< [table_rows, width]
};
void embedding_backward(Element element, Element table, const EmbeddingRows& rows, Stream stream);

/// gradient += product for each group that has rows, group by group; if `fresh`, gradient = product, and 0 for a group
/// without rows, whose product is undefined.
struct GroupGradients {
  const void* product;       ///< bfloat16: `count` elements per group, `product_distance` from group to group
  void* gradient;            ///< float, double or bfloat16, likewise
  const std::int32_t* ends;  ///< where each group's rows end, of all groups of the layer
  std::int64_t first_group, groups, count, product_distance, gradient_distance;
  bool fresh;
};
void add_groups(Element gradient, const GroupGradients& groups, Stream stream);

/// Maps columns to features of the whole module: run r maps columns begin[r] ... begin[r + 1] - 1 to features first[r]
/// ... Columns after the last run are padding, which becomes 0.
struct FeatureRuns {
  static constexpr int kMost = 16;
  int count = 0;
  std::array<std::int64_t, kMost> first = {};
  std::array<std::int64_t, kMost + 1> begin = {};
};
/// out = x * mask. The mask is 0 where uniform(token * width + feature) of the stream (base/random.h) is below `share`,
/// else 1 / (1 - share), rounded to the element type as the CPU's mask is.
struct Dropout {
  const void* x;
  void* out;  ///< may be x
  std::int64_t rows, columns, width;
  const std::int64_t* tokens;  ///< of each row
  std::uint64_t seed, stream;
  double share;
  FeatureRuns features;
};
void dropout(Element element, const Dropout& dropout, Stream stream);

/// Indices of the `k` largest scores of each row, largest first, ties by index; float or double. At most 1,024 columns.
void top_k(Element element, const void* scores, std::int64_t rows, std::int64_t columns, std::int64_t k,
           std::int64_t* chosen, Stream stream);
/// Sorts choices [count] by expert, stably: from[i] is the row (choice / k) at sorted position i, place[c] the sorted
/// position of choice c, counts [experts] the number of choices of each expert.
void sort_choices(const std::int64_t* choices, std::int64_t count, std::int64_t k, std::int64_t experts,
                  std::int64_t* from, std::int64_t* place, std::int64_t* counts, Stream stream);

/// out[t] = sum over j of weights[t, j] * rows[places[t k + j]], in the compute type; without weights a plain sum.
struct RowSums {
  const void *rows, *weights;  ///< [tokens * k, width]; [tokens, k] or null
  const std::int64_t* places;  ///< [tokens * k], a permutation
  void* out;                   ///< [tokens, width]; unused by the backward pass
  std::int64_t tokens, k, width;
};
void sum_rows(Element element, const RowSums& sums, Stream stream);
/// Its gradients, with weights: those of the rows, in the rows' order, and of the weights.
struct RowSumGradients {
  const void* dout;
  void *drows, *dweights;
};
void sum_rows_backward(Element element, const RowSums& sums, const RowSumGradients& gradients, Stream stream);

/// Weights in 4 or 8 bits (quantized.h): the bytes of a part, and where its codes, scales and scales of scales are.
struct Quantized {
  const std::uint8_t* bytes;
  std::int64_t elements, block, scales_at, outer_at;
  int bits;
  bool small_scales;
  /// The part: in each stretch of `period` elements of the whole tensor the ranges that `ranges` maps to its elements.
  std::int64_t period;
  FeatureRuns ranges;
  bool aligned;  ///< every range is of whole blocks; otherwise there is only one range
  float unit;    ///< what a code of 8 bits counts
  std::array<float, 16> normal;
  std::array<float, 256> dynamic;
};
inline constexpr std::int64_t kBlock = 64;        ///< elements of nf4 that share a scale
inline constexpr std::int64_t kScaleBlock = 256;  ///< scales that share a scale
/// `out` [elements], aligned to 16 bytes.
void dequantize(Element out_element, const Quantized& in, void* out, Stream stream);

/// x [rows, columns] as 8-bit numbers times a scale: float8.h's to_float8().
struct Float8Cast {
  const void* x;
  std::int64_t rows, columns;
  std::int64_t pitch;  ///< elements from row to row of x
  ScaleOf scale;
  bool wide_range;    ///< e5m2, else e4m3
  bool power_of_two;  ///< scales are rounded down to powers of two
  bool transposed;    ///< out is [columns, rows]
  float* partial;     ///< scratch space of float8_parts(scale) values, for columns as many times that many
  float* factors;     ///< the scales: one, or one for each row or column
  float* inverse;     ///< and 1 / them
  std::uint8_t* out;
};
std::int64_t float8_parts(ScaleOf scale);
void float8_cast(Element element, const Float8Cast& cast, Stream stream);

}  // namespace automodel::ops::cuda
