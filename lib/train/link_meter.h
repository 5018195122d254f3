// Measures messages and collectives between the ranks of a world.
#pragma once

#include <optional>

#include "comm/world.h"
#include "estimate/calibration.h"

namespace automodel::train {

/// Collective; returns the numbers of the slowest rank. Empty in a world of one rank.
std::optional<estimate::LinkSample> measure_link(comm::World& world);

}  // namespace automodel::train
