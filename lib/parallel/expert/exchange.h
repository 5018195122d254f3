// Transfer of rows between expert-parallel ranks, as two operations of the graph: one sends the rows, the other waits
// for them. Operations recorded in between overlap with the transfer, in both the forward and the backward pass.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "model/seams.h"

namespace automodel::parallel {

/// x [sum of `sent`, width]; rows are ordered by destination rank, those of the result by source rank.
model::RowsInFlight start_exchange(const std::shared_ptr<comm::Communicator>& group, const at::Tensor& x,
                                   std::vector<std::int64_t> sent, std::vector<std::int64_t> received);

/// The received rows. The backward pass sends their gradients, then calls `departed` (may be empty).
at::Tensor finish_exchange(const model::RowsInFlight& in_flight, std::function<void()> departed);

}  // namespace automodel::parallel
