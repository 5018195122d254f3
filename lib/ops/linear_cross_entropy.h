// Head and loss fused, one chunk of tokens at a time: the full logits are never materialised.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/factor.h"
#include "ops/linear.h"

namespace automodel::ops {

/// What a student learns from beside its labels, and what the two parts of its loss were.
struct Lesson {
  double ratio = 0.5;  ///< weight of the divergence; that of the cross-entropy is 1 - ratio, and at 1 none is computed
  double temperature = 1;  ///< what logits are divided by; the divergence is multiplied by its square
  /// The teacher's logits of rows [begin, begin + count), for the same vocabulary entries as the layer's outputs here;
  /// part of no graph.
  std::function<at::Tensor(std::int64_t begin, std::int64_t count)> logits = {};
  /// Set by the loss: sums over tokens of cross-entropy and divergence KL(teacher || student), times scale, float64.
  at::Tensor cross_entropy = {}, divergence = {};
};

struct HeadLoss {
  Factor scale = 1;                           ///< factor of the loss: 1 / label tokens of the global batch
  Factor seed = 1;                            ///< the gradient that the backward pass will start from
  std::int64_t ignore = -100;                 ///< rows with this label are ignored
  std::int64_t rows = 256;                    ///< tokens per chunk
  double logit_scale = 1;                     ///< factor of the logits
  std::vector<double> caps = {};              ///< soft caps of the logits, applied in this order
  std::optional<at::ScalarType> output = {};  ///< type that logits are rounded to before the loss
  /// For a vocabulary-parallel head: the layer's outputs on this rank are the logits of vocabulary entries first ...
  /// first + columns - 1, followed by padding, and `gather` all-gathers this rank's statistics [rows, 3] into
  /// [parts, rows, 3].
  std::int64_t first = 0, columns = 0;
  std::function<at::Tensor(const at::Tensor&)> gather = {};
  std::shared_ptr<Lesson> lesson = {};  ///< null: the loss is the cross-entropy
};

/// Sum over tokens of the cross-entropy (with a lesson, of its mean with the divergence) of `layer`'s output times
/// scale, as a one-element float64 tensor. x [..., in], labels int64 [...]. If a graph is recorded, each chunk's
/// gradients are computed right after its loss: that of x is saved instead of x, and those of the layer's parameters
/// are accumulated before this returns (their gradients must be allocated), with 16-bit ones summed over chunks in
/// float32. The backward pass must start from `seed`. With a vocabulary-parallel head, the gradient of x is this rank's
/// partial sum.
at::Tensor linear_cross_entropy(const at::Tensor& x, const Linear& layer, const at::Tensor& labels,
                                const HeadLoss& loss);

}  // namespace automodel::ops
