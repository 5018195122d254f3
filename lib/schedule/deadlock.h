// Diagnostics for ranks that wait for each other.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "schedule/origin.h"

namespace automodel::schedule {

/// A rank that cannot proceed.
struct Wait {
  std::size_t step = 0;     ///< position in its row
  std::string action = {};  ///< the action at that step
  std::string needs = {};   ///< the action that must come first
  std::size_t rank = 0;     ///< the rank whose row contains that action
};

/// A "schedule-deadlock" diagnostic located at the first rank of a cycle. `waits` is indexed by rank; entries are empty
/// for ranks that reached the end of their row. At least one rank must be waiting.
Diagnostic deadlock(const std::vector<std::optional<Wait>>& waits, const Origin& origin);

}  // namespace automodel::schedule
