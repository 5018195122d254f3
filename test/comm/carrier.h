// What carries the tensors of a test's ranks: the groups of the host; in programs that are linked with
// imitated_carrier, lib/comm/nccl over imitated GPUs.
#pragma once

#include <string>

#include "comm/world.h"

namespace automodel::test {

/// The same options with the carrier in them.
comm::WorldOptions carried(comm::WorldOptions options);
/// What went wrong that no rank could see; "" for nothing.
std::string carrier_mistake();

}  // namespace automodel::test
