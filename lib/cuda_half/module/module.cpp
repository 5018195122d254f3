// The entry point of the shared object, automodel-cuda.so.
#include "cuda_half/module/module.h"

#include <fmt/format.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "cuda_half/module/graphs.h"
#include "cuda_half/stamp.h"
#include "ops/kernels/cuda/table.h"

namespace automodel {
namespace {

std::string versions() {
  int runtime = 0, nccl = 0;
  cudaRuntimeGetVersion(&runtime);
  ncclGetVersion(&nccl);
  return fmt::format("CUDA {}.{}, NCCL {}.{}.{}", runtime / 1000, runtime % 1000 / 10, nccl / 10000, nccl / 100 % 100,
                     nccl % 100);
}

}  // namespace
}  // namespace automodel

extern "C" {

/// Searched for in the file before it is loaded.
[[gnu::used]] extern const char automodel_cuda_stamp[] = AUTOMODEL_CUDA_PLUGIN_MARK AUTOMODEL_CUDA_HALF_STAMP;

const automodel::CudaHalf* automodel_cuda_half(void) {
  using namespace automodel;  // NOLINT(google-build-using-namespace)
  static const CudaHalf kHalf = {&comm::nccl_calls(), &ops::cuda::kernels(), make_graph_capture, versions};
  return &kHalf;
}
}
