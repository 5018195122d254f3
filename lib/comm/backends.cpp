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
  return open_mpi(options, &make_nccl_group);
}

constexpr std::array kBackends = {
    Backend{"mpi", "MPI carries everything; tensors on a GPU pass through host memory, and ranks may share one.",
            always, open_mpi_world},
    Backend{"nccl", "NCCL carries tensors on GPUs, one rank a GPU; MPI starts it and carries the rest.",
            nccl_unavailable, open_nccl_world},
    Backend{"loopback", "One process alone: a job of one rank.", always, open_loopback},
};

}  // namespace

std::span<const Backend> backends() {
  return kBackends;
}

const Backend* find_backend(std::string_view name) {
  const auto* found = std::ranges::find(kBackends, name, &Backend::name);
  return found != kBackends.end() ? found : nullptr;
}

std::unique_ptr<World> open_world(std::string_view backend, const WorldOptions& options) {
  const Backend* found = find_backend(backend);
  if (found == nullptr) {
    std::vector<std::string_view> known;
    for (const Backend& row : kBackends) known.push_back(row.name);
    throw Error(ExitCode::kBadInput,
                {"unknown-backend", fmt::format("no communication backend is called '{}'", backend),
                 suggestion(backend, known)});
  }
  if (const std::string reason = found->unavailable(options.device.type()); !reason.empty())
    throw Error(ExitCode::kEnvironment,
                {"backend-unavailable", fmt::format("backend '{}' cannot be used here: {}", backend, reason),
                 "backend 'mpi' carries tensors of every device"});
  return found->open(options);
}

}  // namespace automodel::comm
