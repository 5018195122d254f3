#include "train/world_settings.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include "comm/backends.h"
#include "estimate/hardware.h"

namespace automodel::train {
namespace {

/// Devices of type CUDA that this rank sees.
int cuda_devices() {
  const auto type = at::getAccelerator();
  return type && *type == at::kCUDA ? at::accelerator::deviceCount() : 0;
}

/// The least of a number over all ranks.
std::int64_t least(comm::World& world, std::int64_t mine) {
  auto tensor = at::full({}, mine, at::TensorOptions().dtype(at::kLong));
  world.control().all_reduce(tensor, comm::ReduceOp::kMin)->wait();
  return tensor.item<std::int64_t>();
}

/// Variables that libraries read when they start; what the user set stays.
void set_default(const char* name, const char* value) {
  setenv(name, value, /*overwrite=*/0);
}

void use_deterministic_kernels(bool only) {
  if (only) {
    set_default("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
    set_default("NCCL_ALGO", "Ring");
  }
  auto& context = at::globalContext();
  if (context.deterministicAlgorithms() == only) return;
  context.setDeterministicAlgorithms(only, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // nothing here reads what it did not write
}

}  // namespace

void use_settings(comm::World& world, const config::Recipe& recipe) {
  use_deterministic_kernels(recipe.model_parallel->deterministic_mode());
  if (const auto minutes = recipe.dist_env->timeout_minutes())
    world.set_deadline(std::chrono::milliseconds(std::llround(*minutes * 60'000)));
  const int devices = cuda_devices();
  const bool everywhere = least(world, devices) > 0;
  const bool cuda =
      recipe.device() == config::Device::kCuda || (recipe.device() == config::Device::kAuto && everywhere);
  if (!cuda) return world.use_device(at::kCPU, {});
  const bool enough = least(world, devices - world.local_size()) >= 0;
  const auto fallback = enough ? config::Backend::kNccl : config::Backend::kMpi;
  const bool nccl = config::backend_of(recipe).value_or(fallback) == config::Backend::kNccl;
  comm::use_device(world, at::kCUDA, nccl ? "nccl" : "mpi");
}

void use_threads(const comm::World& world) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(estimate::threads_of_rank(world.local_size()));
}

}  // namespace automodel::train
