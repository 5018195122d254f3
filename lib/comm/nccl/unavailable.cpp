#include "comm/nccl/nccl.h"

namespace automodel::comm {

std::string nccl_unavailable(at::DeviceType /*device*/) {
  return "this build is without CUDA";
}

DeviceGroups nccl_groups() {
  return {};
}

}  // namespace automodel::comm
