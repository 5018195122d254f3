// The table of schedules, one row each. Help, errors, documentation and tests are generated from it. See
// docs/adding-a-schedule.md.
#pragma once

#include <span>
#include <string_view>

#include "base/diagnostic.h"
#include "schedule/action.h"
#include "schedule/placement.h"

namespace automodel::schedule {

/// The sizes to generate a schedule for.
struct Request {
  int ranks = 1;
  int stages_per_rank = 1;
  int microbatches = 1;
  /// MegatronInterleaved: microbatches that a rank runs through one stage before moving to its next stage
  /// (microbatch_group_size_per_vp_stage); 0 means the number of ranks.
  int microbatch_group_size = 0;

  int stages() const { return ranks * stages_per_rank; }
  Shape shape() const { return {ranks, stages(), microbatches}; }
};

/// An alternative name of a schedule.
struct Alias {
  std::string_view name;
  std::string_view doc;  ///< who uses this name and, if not obvious, why it means this schedule
};

struct Generator {
  std::string_view name;  ///< as torch.distributed.pipelining spells it
  std::span<const Alias> aliases;
  std::string_view doc;
  PlacementStyle placement = PlacementStyle::kLoop;
  bool single_stage = false;  ///< exactly one stage per rank; NeMo AutoModel and torch treat these schedules separately
  int min_stages_per_rank = 1;
  int max_stages_per_rank = 0;                     ///< 0: no limit
  Diagnostics (*check)(const Request&) = nullptr;  ///< requirements beyond the fields above
  Schedule (*generate)(const Request&) = nullptr;  ///< null: the order is searched, or comes from a CSV file
  std::string_view not_searched = {};              ///< why a search for the best plan does not try it; empty: it does
  bool searched = false;                           ///< the order is found for a plan's times and memory
};

std::span<const Generator> generators();
/// By name or alias, without regard to case and hyphens; null for an unknown name.
const Generator* find_generator(std::string_view name);
/// A "schedule-unknown" diagnostic with the nearest name and the list of all names.
Diagnostic unknown_schedule(std::string_view name);

/// All problems of a request: sizes below 1 or too large, stages per rank, microbatches, and "schedule-needs-csv" for a
/// row without a generator. Messages name the nearest valid value.
Diagnostics check_request(const Generator& generator, const Request& request);
/// The table of compute actions (F, I, W, B) and bubbles. The request must have passed check_request().
Schedule generate(const Generator& generator, const Request& request);

}  // namespace automodel::schedule
