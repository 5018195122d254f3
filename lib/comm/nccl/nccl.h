// Groups whose tensors stay on their GPUs.
#pragma once

#include <memory>
#include <string>

#include "comm/world.h"

namespace automodel::comm {

/// Why NCCL cannot be used with tensors of this device in this build; "" where it can.
std::string nccl_unavailable(at::DeviceType device);

/// The group of the same ranks as `host`, over NCCL for tensors on this rank's GPU and over `host` for host tensors.
/// Collective over the members. Throws Error (kEnvironment) where several ranks of a host share a GPU or NCCL fails.
std::shared_ptr<Communicator> make_nccl_group(World& world, std::shared_ptr<HostCommunicator> host);

}  // namespace automodel::comm
