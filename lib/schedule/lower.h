// Lowering from the order of computations to complete tables that also gather and free parameters, reduce gradients,
// and send and receive messages. Each pass maps a table to a new one. The result matches torch.distributed.pipelining's
// table action for action.
#pragma once

#include <cstdint>

#include "base/diagnostic.h"
#include "schedule/action.h"
#include "schedule/origin.h"
#include "schedule/placement.h"

namespace automodel::schedule {

/// Adds UNSHARD before a stage is used and RESHARD once it is no longer among the stages used next. A rank keeps its
/// next three distinct stages gathered, or four if an overlapped pair brings in the third and fourth together. Drops
/// bubbles. Rows are independent.
Row add_unshard_reshard(const Row& row);

/// Adds REDUCE_GRAD of a stage right after its last B or W; there is one B or W per microbatch.
Row add_reduce_grad(const Row& row, const Shape& shape);

struct Lowered {
  Schedule schedule = {};
  Diagnostics problems = {};  ///< "schedule-deadlock" if ranks wait for each other; the message shows the cycle
};

enum class IdleSteps : std::uint8_t { kDrop, kKeep };

/// Adds SEND and RECV between neighbouring stages on different ranks. Walks all rows in sweeps of one action per rank;
/// when a result must be sent, SEND is appended to the sender's row and, at the same time, RECV to the receiver's.
/// Hence sends and receives have the same order on every pair of ranks, and the table can run with blocking sends.
/// Requires a table accepted by validate(). Linear in its size. An idle step takes a turn, kept in the result or not.
Lowered add_send_recv(const Schedule& schedule, const Placement& placement, const Shape& shape,
                      const Origin& origin = {}, IdleSteps idle = IdleSteps::kDrop);

/// All passes. `schedule` must contain only compute actions and have passed validate(). For evaluation, apply lower()
/// to forward_only(). Problems refer to cells of `schedule`.
Lowered lower(const Schedule& schedule, const Placement& placement, const Shape& shape, const Origin& origin = {});

}  // namespace automodel::schedule
