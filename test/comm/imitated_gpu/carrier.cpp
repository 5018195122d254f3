#include "comm/carrier.h"

#include "comm/imitated_gpu/gpu.h"

namespace automodel::test {

comm::WorldOptions carried(comm::WorldOptions options) {
  options.imitation = [] { return imitated_nccl(); };
  return options;
}

std::string carrier_mistake() {
  return gpu_mistake();
}

}  // namespace automodel::test
