// Rows under way between expert-parallel ranks, as two operations of the graph: one that lets them go and one that
// waits for them. What is recorded in between runs while they travel, in the forward pass and in the backward pass.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "model/seams.h"

namespace automodel::parallel {

/// x [sum of `sent`, width]; rows go to the members of `group` in order. The result's rows come from them in order.
model::TravellingRows start_exchange(const std::shared_ptr<comm::Communicator>& group, const at::Tensor& x,
                                     std::vector<std::int64_t> sent, std::vector<std::int64_t> received);

/// The rows that came. The backward pass lets their gradients go, then calls `departed` (may be empty).
at::Tensor finish_exchange(const model::TravellingRows& travelling, std::function<void()> departed);

}  // namespace automodel::parallel
