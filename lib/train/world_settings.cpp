#include "train/world_settings.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include "base/nvidia_driver.h"
#include "comm/backends.h"
#include "comm/nccl/nccl.h"
#include "cuda_half/cuda_half.h"
#include "estimate/hardware.h"

namespace automodel::train {
namespace {

/// Number of CUDA devices that this rank sees. Call only once the CUDA half is loaded: otherwise LibTorch caches that
/// there are none.
int cuda_devices() {
  const auto type = at::getAccelerator();
  return type && *type == at::kCUDA ? at::accelerator::deviceCount() : 0;
}

/// The minimum over all ranks.
std::int64_t least(comm::World& world, std::int64_t mine) {
  auto tensor = at::full({}, mine, at::TensorOptions().dtype(at::kLong));
  world.control().all_reduce(tensor, comm::ReduceOp::kMin)->wait();
  return tensor.item<std::int64_t>();
}

/// Sets a variable that libraries read when they start, unless the user has set it.
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
  context.setDeterministicFillUninitializedMemory(false);  // no code here reads uninitialized memory
}

/// Collects from all ranks: why the first of them has no CUDA half, the first driver's line, and how many see no
/// device. `lack` is the reason on this rank.
std::optional<Diagnostic> note_of_processor(comm::World& world, int devices, const std::string& lack) {
  if (least(world, cuda_half_expected() ? 0 : 1) == 1) return std::nullopt;
  const auto first_of_all = [&world](const std::string& mine) {
    const auto all = world.gather_text(mine);
    const auto found = std::ranges::find_if(all, [](const std::string& line) { return !line.empty(); });
    return world.broadcast_text(found == all.end() ? "" : *found);  // only rank 0 has the list
  };
  const auto reason = first_of_all(lack), driver = first_of_all(nvidia_driver());
  auto without = at::full({}, devices > 0 ? 0 : 1, at::TensorOptions().dtype(at::kLong));
  world.control().all_reduce(without, comm::ReduceOp::kSum)->wait();
  return cpu_chosen(reason, driver, without.item<int>(), world.size());
}

}  // namespace

Diagnostic cpu_chosen(std::string_view lack, std::string_view driver, int without, int ranks) {
  std::string why(lack);
  if (why.empty()) why = driver_lack(driver, kCudaMajor);
  if (why.empty()) why = fmt::format("{} of {} ranks see no CUDA device", without, ranks);
  return Diagnostic{"no-gpu-used"}
      .says("device: auto uses the CPU: {}", why)
      .hint("'automodel doctor' looks at the driver and the libraries; device: cpu says that this is meant")
      .of("device");
}

std::optional<Diagnostic> use_settings(comm::World& world, const config::Recipe& recipe) {
  use_deterministic_kernels(config::deterministic(recipe));
  if (const auto minutes = recipe.dist_env->timeout_minutes())
    world.set_deadline(std::chrono::milliseconds(std::llround(*minutes * 60'000)));
  const bool automatic = recipe.device() == config::Device::kAuto;
  const bool asked = recipe.device() == config::Device::kCuda;
  const bool looks = asked || (automatic && cuda_half_expected());
  if (looks) {
    // Launches of several communicators on a device must follow program order, and streams must not share a hardware
    // queue, where an NCCL kernel would block whatever is queued behind it. CUDA reads its variables on the first call
    // that initialises it, which counting devices is.
    set_default("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
    set_default("CUDA_DEVICE_MAX_CONNECTIONS", "32");
    // Otherwise NCCL connects a collective's peers inside the first one of each algorithm, on the host, where neither
    // the proof of the order of messages nor the watch's deadline is about it.
    set_default("NCCL_RUNTIME_CONNECT", "0");
    // Lengths that change fragment memory of fixed segments. The pool of CUDA graphs keeps its segments anyway.
    if (!recipe.model_parallel->enable_cuda_graph() && std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr)
      set_default("PYTORCH_ALLOC_CONF", "expandable_segments:True");
  }
  if (asked) require_cuda_half();
  const auto lack = looks ? load_cuda_half() : std::nullopt;
  const int devices = looks && !lack ? cuda_devices() : 0;
  const bool everywhere = least(world, devices) > 0;
  if (!(asked || (automatic && everywhere))) {
    world.use_device(at::kCPU, {});
    return automatic ? note_of_processor(world, devices, lack ? lack->message : "") : std::nullopt;
  }
  const bool apart = everywhere && !comm::shared_gpu(world.control(), world.local_rank() % devices);
  const auto fallback = apart ? config::Backend::kNccl : config::Backend::kMpi;
  const bool nccl = config::backend_of(recipe).value_or(fallback) == config::Backend::kNccl;
  comm::use_device(world, at::kCUDA, nccl ? "nccl" : "mpi");
  return std::nullopt;
}

void use_threads(const comm::World& world) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(estimate::threads_of_rank(world.local_size()));
}

}  // namespace automodel::train
