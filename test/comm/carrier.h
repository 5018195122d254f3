// What carries tensors between a test's ranks: groups on the host or, in programs linked with imitated_gpu/carrier.cpp,
// lib/comm/nccl on imitated GPUs.
#pragma once

#include <string>

#include "comm/world.h"

namespace automodel::test {

/// The options with the carrier added.
comm::WorldOptions carried(comm::WorldOptions options);
/// A mistake that no rank could notice; "" for none.
std::string carrier_mistake();

}  // namespace automodel::test
