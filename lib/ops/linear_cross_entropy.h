// Head and loss, one chunk of tokens at a time: logits never exist as a whole.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/factor.h"
#include "ops/linear.h"

namespace automodel::ops {

struct HeadLoss {
  Factor scale = 1;                           ///< of the loss: 1 / label tokens of the global batch
  Factor seed = 1;                            ///< what the backward pass will start with
  std::int64_t ignore = -100;                 ///< rows with this label are ignored
  std::int64_t rows = 256;                    ///< tokens of a chunk
  double logit_scale = 1;                     ///< factor of the logits
  std::vector<double> caps = {};              ///< soft caps of the logits, in their order
  std::optional<at::ScalarType> output = {};  ///< that logits are rounded to before the loss
  /// Where several ranks share the vocabulary: which tokens the layer's columns are here (what follows is filling), and
  /// what gives the statistics [parts, rows, 3] of all ranks for those of this one [rows, 3].
  std::int64_t first = 0, columns = 0;
  std::function<at::Tensor(const at::Tensor&)> gather = {};
};

/// Sum over tokens of the cross-entropy of `layer`'s result times scale, as a float64 tensor of one element.
/// x [..., in], labels int64 [...]. Where a graph is recorded each chunk's gradient is computed as soon as its loss:
/// that of x is kept in x's stead, those of the layer's parameters are added to theirs (which must have memory) before
/// this returns, over chunks in float32 where they are 16-bit. The backward pass must start with `seed`. Where ranks
/// share the vocabulary x's gradient is this rank's part of the sum.
at::Tensor linear_cross_entropy(const at::Tensor& x, const Linear& layer, const at::Tensor& labels,
                                const HeadLoss& loss);

}  // namespace automodel::ops
