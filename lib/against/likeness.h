// Numbers of a comparison: how alike two tensors are, and whether an explanation predicts a dump.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "against/evidence.h"

namespace automodel::against {

/// Sums over the elements of two tensors.
struct Products {
  double theirs = 0, ours = 0;  ///< of squares
  double both = 0;              ///< of products
  double difference = 0;        ///< of squared differences
  void add(std::span<const double> a, std::span<const double> b);
};

/// One tensor of the report.
struct Likeness {
  double relative_difference = 0;  ///< as Tolerance defines it
  double cosine = 1;               ///< 1 if both are zero
  double norm_ratio = 1;           ///< |theirs| / |ours|; 1 if both are zero
};

/// All tensors, in order.
std::vector<Likeness> likenesses(const Evidence& evidence);

/// The norm of all our gradients.
double norm_of_ours(const Evidence& evidence);

/// The largest relative difference of the dump from a prediction. `predicted(i)`: of tensor i, at every stride-th
/// element where `sampled`, else whole.
double worst_difference(const Evidence& evidence, bool sampled, const std::function<Values(std::size_t)>& predicted);

/// Elements 0, stride, 2 stride, ... of a tensor.
Values sampled(const Values& whole, std::int64_t stride);

/// |a - b| / |b|; a difference from zero is infinite.
double relative(double a, double b);

}  // namespace automodel::against
