// A number that work on a device is done with: one that the host knows, times one that stands in the device's memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// What was captured (captured_work.h) keeps `value` for ever, and reads `device` again each time that it is replayed.
struct Factor {
  double value = 1;
  at::Tensor device = {};  ///< float64 of one element; undefined: 1
  Factor() = default;
  Factor(double known) : value(known) {}  // NOLINT(google-explicit-constructor): a plain number is a factor
  explicit Factor(at::Tensor number) : device(std::move(number)) {}
  /// Null where `device` is undefined.
  const double* address() const { return device.defined() ? device.const_data_ptr<double>() : nullptr; }
  Factor times(const Factor& other) const;
  /// x times the factor, in x's type.
  at::Tensor of(const at::Tensor& x) const;
};

}  // namespace automodel::ops
