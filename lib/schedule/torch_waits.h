// The waits that PyTorch 2.15 adds to complete tables: WAIT_SEND_F and WAIT_SEND_B (a message has left), and
// WAIT_REDUCE_GRAD (a reduction has ended). This program's executor frees what it sent as soon as the message has left,
// and ends reductions before the optimizer, so a wait has no effect here: it is checked and kept as an idle step.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "schedule/action.h"
#include "schedule/placement.h"

namespace automodel::schedule {

/// The action that a cell such as "0WAIT_SEND_F3" or "1WAIT_REDUCE_GRAD" waits for; nothing if it is no wait.
std::optional<Action> parse_wait(std::string_view cell);

/// The complete table of a valid order as PyTorch 2.15 lowers it, as a CSV file.
std::string to_csv_with_waits(const Schedule& order, const Placement& placement, const Shape& shape);

}  // namespace automodel::schedule
