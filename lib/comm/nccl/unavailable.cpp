#include "base/error.h"
#include "comm/nccl/nccl.h"

namespace automodel::comm {

std::string nccl_unavailable(at::DeviceType /*device*/) {
  return "this build is without CUDA";
}

std::shared_ptr<Communicator> make_nccl_group(World& /*world*/, std::shared_ptr<HostCommunicator> /*host*/) {
  AUTOMODEL_CHECK(false, "a group of an unavailable backend");
  return nullptr;
}

}  // namespace automodel::comm
