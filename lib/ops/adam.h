// The optimizer's arithmetic over flat buffers.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/kernels/kernels.h"

namespace automodel::ops {

/// One Adam or AdamW step. All tensors are contiguous and have the same length and type (float32 or float64);
/// `max_square` is undefined without amsgrad.
void adam(at::Tensor value, const at::Tensor& gradient, at::Tensor mean, at::Tensor square, at::Tensor max_square,
          const AdamStep& step);

/// The same for pieces with their own learning rate and weight decay, which replace those of `step`; the gradient may
/// be of a narrower type. On a device all pieces take one launch, or a few.
struct AdamPiece {
  at::Tensor value, gradient, mean, square, max_square;
  double lr, weight_decay;
};
void adam(const std::vector<AdamPiece>& pieces, AdamStep step);
/// Whether adam() and SquareSums process tensors like x in one launch, so that callers should collect pieces first.
bool computed_together(const at::Tensor& x);

/// Sum of squares in float64.
double sum_of_squares(const at::Tensor& x);

/// Sums of squares of several groups of tensors. On a device everything is deferred to totals(), which synchronises
/// with the device once.
class SquareSums {
 public:
  explicit SquareSums(std::size_t groups) : waiting_(groups), sums_(groups) {}
  void add(std::size_t group, const at::Tensor& x);
  /// One sum per group, over everything added so far.
  std::vector<double> totals();

 private:
  std::vector<std::vector<at::Tensor>> waiting_;
  std::vector<double> sums_;
};

}  // namespace automodel::ops
