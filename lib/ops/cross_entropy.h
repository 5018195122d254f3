// The loss: cross-entropy of the head's logits. The gradient is computed in the same pass and overwrites the logits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/factor.h"

namespace automodel::ops {

/// Sum over rows of cross-entropy times `scale` (1 / label tokens of the global batch), as a one-element float64 tensor
/// recorded in the graph. logits [..., vocabulary] are consumed: their memory becomes the gradient. labels int64 [...];
/// rows whose label is `ignore` contribute nothing. If no graph is recorded, only the sum is computed.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const Factor& scale,
                         std::int64_t ignore = -100);

/// The same for a matrix of logits, without recording a graph: returns the unscaled sum; with `gradient`, logits become
/// the gradient of the scaled one, scale * (softmax - onehot). `cap` > 0: each logit x is replaced by
/// cap * tanh(x / cap); only where device_kernels() are used.
at::Tensor cross_entropy_in_place(at::Tensor logits, const at::Tensor& labels, const Factor& scale, std::int64_t ignore,
                                  bool gradient, double cap = 0);

// Vocabulary-parallel logits: what each rank computes before and after the exchange of statistics. `logits` [rows,
// stride] holds vocabulary entries first ... first + columns - 1, followed by padding; `cap` as above. Nothing is
// recorded in the graph.

/// [rows, 3] in float32 (float64 for float64 logits): largest logit, sum of exp(logit - largest), the label's logit (0
/// if another rank has it). With columns == 0: {-inf, 0, 0}.
at::Tensor logit_statistics(const at::Tensor& logits, const at::Tensor& labels, std::int64_t first,
                            std::int64_t columns, double cap = 0);

/// The loss and softmax of each row, from the statistics of all parts [parts, rows, 3].
struct JoinedStatistics {
  at::Tensor losses;  ///< [rows] float64, 0 where ignored
  at::Tensor shares;  ///< [rows, 2]: largest logit; scale / sum of exp(logit - largest) (0 where ignored)
};
JoinedStatistics join_statistics(const at::Tensor& statistics, const at::Tensor& labels, double scale,
                                 std::int64_t ignore);

/// Overwrites logits with their gradient, scale * (softmax - onehot); padding becomes 0.
void logit_gradient(at::Tensor logits, const at::Tensor& labels, std::int64_t first, std::int64_t columns,
                    const at::Tensor& shares, double scale, double cap = 0);

}  // namespace automodel::ops
