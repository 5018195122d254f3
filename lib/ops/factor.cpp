#include "ops/factor.h"

#include <ATen/TensorOperators.h>

namespace automodel::ops {

Factor Factor::times(const Factor& other) const {
  Factor out(value * other.value);
  out.device = device.defined() && other.device.defined() ? device * other.device
               : device.defined()                         ? device
                                                          : other.device;
  return out;
}

at::Tensor Factor::of(const at::Tensor& x) const {
  const auto known = device.defined() && value == 1 ? x : x * value;
  return device.defined() ? known * device.to(x.scalar_type()) : known;
}

}  // namespace automodel::ops
