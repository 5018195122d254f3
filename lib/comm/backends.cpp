#include "comm/backends.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/spelling.h"
#include "comm/loopback/loopback.h"
#include "comm/mpi/mpi.h"
#include "comm/nccl/nccl.h"

namespace automodel::comm {
namespace {

std::string always(at::DeviceType /*device*/) {
  return "";
}

std::unique_ptr<World> open_mpi_world(const WorldOptions& options) {
  return open_mpi(options);
}

std::unique_ptr<World> open_nccl_world(const WorldOptions& options) {
  return open_mpi(options, nccl_groups());
}

constexpr std::array kBackends = {
    Backend{"mpi", "MPI carries everything; tensors on a GPU pass through host memory, and ranks may share one.",
            always, open_mpi_world, nullptr},
    Backend{"nccl", "NCCL carries tensors on GPUs, one rank per GPU; MPI starts it and carries the rest.",
            nccl_unavailable, open_nccl_world, nccl_groups},
    Backend{"loopback", "One process alone: a job of one rank.", always, open_loopback, nullptr},
};

}  // namespace

std::span<const Backend> backends() {
  return kBackends;
}

const Backend* find_backend(std::string_view name) {
  const auto* found = std::ranges::find(kBackends, name, &Backend::name);
  return found != kBackends.end() ? found : nullptr;
}

namespace {

const Backend& usable_backend(std::string_view name, at::DeviceType device) {
  const Backend* found = find_backend(name);
  if (found == nullptr) {
    std::vector<std::string_view> known;
    for (const Backend& row : kBackends) known.push_back(row.name);
    throw Error(Diagnostic{"unknown-backend"}
                    .says("no communication backend is called '{}'", name)
                    .hint(suggestion(name, known)));
  }
  if (const std::string reason = found->unavailable(device); !reason.empty())
    throw Error(Diagnostic{"backend-unavailable"}
                    .says("backend '{}' cannot be used here: {}", name, reason)
                    .hint("backend 'mpi' carries tensors of every device"));
  return *found;
}

}  // namespace

std::unique_ptr<World> open_world(std::string_view backend, const WorldOptions& options) {
  return usable_backend(backend, options.device.type()).open(options);
}

void use_device(World& world, at::Device device, std::string_view backend) {
  const Backend& row = usable_backend(backend, device.type());
  world.use_device(device, row.device_groups != nullptr ? row.device_groups() : DeviceGroups());
}

}  // namespace automodel::comm
