// Copies of host data on a device.
#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// A copy of `host`, converted to `type`, on `device`; the host does not wait for it. Staged through pinned memory
/// unless the device is the CPU.
at::Tensor uploaded(const at::Tensor& host, at::ScalarType type, at::Device device);

}  // namespace automodel::ops
