// Groups whose tensors stay on their GPUs.
#pragma once

#include <string>

#include "comm/world.h"

namespace automodel::comm {

/// Why NCCL cannot be used with tensors of this device in this build; "" where it can.
std::string nccl_unavailable(at::DeviceType device);

/// Makes groups of the same ranks as the host's, over NCCL for tensors on this rank's GPU and over the host's for host
/// tensors. Collective over the members. Throws Error (kEnvironment) where several ranks share a GPU or NCCL fails.
DeviceGroups nccl_groups();

}  // namespace automodel::comm
