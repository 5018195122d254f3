#include "comm/nccl/nccl.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <ATen/ops/zeros.h>

#include "comm/monitor.h"
#include "comm/nccl/communicator.h"

namespace automodel::comm {
namespace {

constexpr std::int64_t kNameLength = 320;

/// Identifies a GPU across all hosts.
std::string gpu_name(int device) {
  std::array<char, 64> bus = {};
  check_cuda(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "cudaDeviceGetPCIBusId");
  return fmt::format("{}/{}", host_id(), bus.data());
}

std::optional<std::pair<int, int>> sharing(Communicator& group, int device) {
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  const at::Tensor mine = at::zeros({kNameLength}, bytes);
  const at::Tensor all = at::zeros({group.size(), kNameLength}, bytes);
  const std::string name = gpu_name(device);
  std::memcpy(mine.mutable_data_ptr(), name.data(), std::min<std::size_t>(name.size(), kNameLength - 1));
  group.all_gather(all, mine)->wait();
  std::map<std::string, int> first;
  for (int r = 0; r < group.size(); ++r) {
    const auto* text = static_cast<const char*>(all.const_data_ptr()) + r * kNameLength;
    if (const auto [known, fresh] = first.try_emplace(text, r); !fresh) return std::pair(known->second, r);
  }
  return std::nullopt;
}

/// Whether NCCL itself was told to let ranks share a GPU, which it can from 2.30 on (experimental): two ranks are
/// enough to test communication over NCCL on a machine with one GPU.
bool sharing_allowed() {
  const char* set = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  int version = 0;
  return set != nullptr && std::string_view(set) == "1" && ncclGetVersion(&version) == ncclSuccess && version >= 23'000;
}

/// Otherwise NCCL needs a separate GPU for each rank, and does not say which ranks share one.
void refuse_shared_gpus(World& world, HostCommunicator& host) {
  if (sharing_allowed()) return;
  const auto shared = sharing(host, world.device().index());
  if (!shared) return;
  throw Error(Diagnostic{"gpu-shared"}
                  .says("ranks {} and {} are on the same GPU, which NCCL does not support",
                        host.ranks()[static_cast<std::size_t>(shared->first)],
                        host.ranks()[static_cast<std::size_t>(shared->second)])
                  .hint("start as many ranks on a host as it has GPUs, or choose dist_env.backend: mpi"));
}

std::string unavailable(at::DeviceType device) {
  return device == kGpu ? "" : "it carries tensors on GPUs only";
}

DeviceGroups groups() {
  return [watch = std::shared_ptr<Watch>()](World& world, std::shared_ptr<HostCommunicator> host,
                                            Traffic traffic) mutable {
    if (!watch) watch = std::make_shared<Watch>(world);
    refuse_shared_gpus(world, *host);
    return std::make_shared<NcclCommunicator>(std::move(host), watch, traffic);
  };
}

}  // namespace

const NcclCalls& nccl_calls() {
  static constexpr NcclCalls kCalls = {unavailable, sharing, groups};
  return kCalls;
}

}  // namespace automodel::comm
