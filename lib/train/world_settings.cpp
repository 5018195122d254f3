#include "train/world_settings.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include "comm/backends.h"
#include "plan/hardware.h"

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

}  // namespace

void use_settings(comm::World& world, const config::Recipe& recipe) {
  if (const auto minutes = recipe.dist_env->timeout_minutes())
    world.set_deadline(std::chrono::milliseconds(std::llround(*minutes * 60'000)));
  const int devices = cuda_devices();
  const bool everywhere = least(world, devices) > 0;
  const bool cuda =
      recipe.device() == config::Device::kCuda || (recipe.device() == config::Device::kAuto && everywhere);
  if (!cuda) return world.use_device(at::kCPU, {});
  const bool enough = least(world, devices - world.local_size()) >= 0;
  std::string backend = recipe.dist_env->backend().value_or(enough ? "nccl" : "mpi");
  if (backend == "gloo") backend = "mpi";
  comm::use_device(world, at::kCUDA, backend);
}

void use_threads(const comm::World& world) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(plan::threads_of_rank(world.local_size()));
}

}  // namespace automodel::train
