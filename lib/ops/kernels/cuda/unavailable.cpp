// Builds without the CUDA code (AUTOMODEL_CUDA).
#include "ops/kernels/device.h"

namespace automodel::ops {

const DeviceKernels* built_kernels() {
  return nullptr;
}

}  // namespace automodel::ops
