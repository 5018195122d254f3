// A scalar factor of device work: a number known to the host times one in device memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// Captured work (captured_work.h) keeps `value` from its capture and reads `device` again at every replay.
struct Factor {
  double value = 1;
  at::Tensor device = {};  ///< one-element float64; undefined: 1
  Factor() = default;
  Factor(double known) : value(known) {}  // NOLINT(google-explicit-constructor): a plain number is a factor
  explicit Factor(at::Tensor number) : device(std::move(number)) {}
  /// Null if `device` is undefined.
  const double* address() const { return device.defined() ? device.const_data_ptr<double>() : nullptr; }
  Factor times(const Factor& other) const;
  /// x times the factor, in x's dtype.
  at::Tensor of(const at::Tensor& x) const;
};

}  // namespace automodel::ops
