// What the CUDA half provides to a program, and the errors it throws into it, on a machine without a GPU: exit code 0
// if all is as expected. AUTOMODEL_CUDA_PLUGIN names the file.
#include <cstdio>

#include "comm/loopback/loopback.h"
#include "comm/nccl/nccl.h"
#include "cuda_half/cuda_half.h"
#include "ops/kernels/device.h"

namespace {

int failures = 0;

void expect(bool is, const char* what) {
  if (is) return;
  std::fprintf(stderr, "not so: %s\n", what);
  ++failures;
}

}  // namespace

int main() {
  using namespace automodel;  // NOLINT(google-build-using-namespace)
  expect(!comm::nccl_unavailable(at::kCUDA).empty(), "there is no NCCL before");
  expect(ops::loaded_kernels() == nullptr, "there are no kernels before");
  if (const auto problem = load_cuda_half()) {
    std::fputs(to_text(Diagnostics{*problem}).c_str(), stderr);
    return static_cast<int>(ExitCode::kEnvironment);
  }
  expect(comm::nccl_unavailable(at::kCUDA).empty(), "there is NCCL afterwards");
  expect(!comm::nccl_unavailable(at::kCPU).empty(), "which carries tensors on GPUs only");
  expect(ops::loaded_kernels() != nullptr && ops::loaded_kernels()->norm_parts(1000) > 0,
         "there are kernels afterwards");
  // This asks the CUDA runtime, which has no device: the Error thrown must have this program's type.
  const auto outcome = comm::run_ranks(1, [](comm::World& world) { comm::shared_gpu(world.control(), 0); });
  expect(outcome.code == ExitCode::kEnvironment, "an error of the CUDA half has its exit code");
  expect(outcome.text.find("error[cuda-failed]") != std::string::npos, "and its text");
  if (failures > 0) std::fprintf(stderr, "%s\n", outcome.text.c_str());
  return failures > 0 ? 1 : 0;
}
