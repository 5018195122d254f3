#include "ops/kernels/cuda/table.h"

#include <string>

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "base/error.h"

namespace automodel::ops {

const DeviceKernels* built_kernels() {
  static const DeviceKernels kernels =
      cuda::table([]() -> cuda::Stream { return c10::cuda::getCurrentCUDAStream().stream(); });
  return &kernels;
}

void cuda::started(int code) {
  const auto status = static_cast<cudaError_t>(code);
  if (status == cudaSuccess) return;
  throw Error(ExitCode::kEnvironment,
              {"cuda-failed", std::string("a kernel could not be started: ") + cudaGetErrorString(status),
               "look at the GPU with nvidia-smi and at the kernel's log (Xid)"});
}

}  // namespace automodel::ops
