// All ranks continue together, or all of them stop with the same error.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/diagnostic.h"
#include "comm/communicator.h"
#include "comm/world.h"

namespace automodel::checkpoint {

/// Runs `work` on every rank of the group. If it throws on any rank, throws Error (kCheckpoint) on every rank, with the
/// problem of the lowest such rank. A failed rank thus never leaves the others waiting.
void together(comm::Communicator& group, const std::function<void()>& work);

/// Every rank's numbers, concatenated in rank order; all ranks must pass the same count.
std::vector<std::uint64_t> gather_numbers(comm::Communicator& group, const std::vector<std::uint64_t>& mine);

}  // namespace automodel::checkpoint
