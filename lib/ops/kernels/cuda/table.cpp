#include "ops/kernels/cuda/table.h"

#include <string>

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "base/error.h"

namespace automodel::ops {

namespace {

/// The compute capability of this process's GPU, as 89 for 8.9.
int capability() {
  static const int known = [] {
    int device = 0, major = 0, minor = 0;
    cuda::started(cudaGetDevice(&device));
    cuda::started(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    cuda::started(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    return 10 * major + minor;
  }();
  return known;
}

bool has_float8() {
  return capability() >= 89;
}

/// LibTorch gives matmuls with row-wise scales to cuBLASLt on these, and elsewhere to CUTLASS, in a form that takes
/// rows for adjacent and does not check (RowwiseScaledMM.cu).
bool writes_float8_rows_apart() {
  return capability() / 10 == 9;
}

/// LibTorch's fast kernels exist only for these (_scaled_mm_allowed_device); elsewhere it copies the group ends to the
/// host.
bool has_grouped_product() {
  return capability() / 10 == 9 || capability() / 10 == 10;
}

}  // namespace

const DeviceKernels& cuda::kernels() {
  static const DeviceKernels kKernels = [] {
    auto out = cuda::table([]() -> cuda::Stream { return c10::cuda::getCurrentCUDAStream().stream(); });
    out.has_float8 = has_float8;
    out.writes_float8_rows_apart = writes_float8_rows_apart;
    out.has_grouped_product = has_grouped_product;
    return out;
  }();
  return kKernels;
}

void cuda::started(int code) {
  const auto status = static_cast<cudaError_t>(code);
  if (status == cudaSuccess) return;
  throw Error(Diagnostic{"cuda-failed"}
                  .says(std::string("a kernel could not be started: ") + cudaGetErrorString(status))
                  .hint("look at the GPU with nvidia-smi and at the kernel's log (Xid)"));
}

}  // namespace automodel::ops
