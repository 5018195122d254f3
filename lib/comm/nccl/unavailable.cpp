#include "comm/nccl/nccl.h"

namespace automodel::comm {

std::string nccl_unavailable(at::DeviceType /*device*/) {
  return "this build is without CUDA";
}

std::optional<std::pair<int, int>> shared_gpu(Communicator& /*group*/, int /*device*/) {
  return std::nullopt;
}

DeviceGroups nccl_groups() {
  return {};
}

}  // namespace automodel::comm
