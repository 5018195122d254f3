// The interface between the program and its CUDA half. Both sides must be C++ from the same build, which the stamp
// verifies.
#pragma once

#include <memory>
#include <string>

#include "comm/nccl/nccl.h"
#include "ops/captured_work.h"
#include "ops/kernels/device.h"

namespace automodel {

struct CudaHalf {
  const comm::NcclCalls* nccl;
  const ops::DeviceKernels* kernels;
  std::unique_ptr<ops::WorkCapture> (*capture)();  ///< CUDA graphs
  std::string (*versions)();                       ///< "CUDA 13.0, NCCL 2.28.9"
};

}  // namespace automodel

/// The shared object's only entry point.
extern "C" const automodel::CudaHalf* automodel_cuda_half(void);
