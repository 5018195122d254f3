// Groups whose tensors stay on their GPUs. Only the CUDA half links NCCL (cuda_half/cuda_half.h); it supplies the
// functions below when it is loaded. Before that, NCCL is unavailable.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "comm/world.h"

namespace automodel::comm {

/// Implemented where NCCL is linked.
struct NcclCalls {
  std::string (*unavailable)(at::DeviceType device);
  std::optional<std::pair<int, int>> (*shared_gpu)(Communicator& group, int device);
  DeviceGroups (*groups)();
};
/// Defined in the CUDA half.
const NcclCalls& nccl_calls();
/// Sets the functions to call from now on, for the rest of the process.
void use_nccl(const NcclCalls& calls);

/// Why NCCL cannot be used with tensors on this device; "" if it can.
std::string nccl_unavailable(at::DeviceType device);

/// Two positions in `group` whose ranks would compute on the same GPU, if there are any. GPUs are identified by host
/// and PCI bus id, since each rank may see only one GPU and call it 0. `device` is this rank's device index.
/// Collective.
std::optional<std::pair<int, int>> shared_gpu(Communicator& group, int device);

/// Makes groups of the same ranks as the host's group, using NCCL for tensors on this rank's GPU and the host's group
/// for host tensors. Collective over the members. Throws Error (kEnvironment) if several ranks share a GPU or NCCL
/// fails.
DeviceGroups nccl_groups();

}  // namespace automodel::comm
