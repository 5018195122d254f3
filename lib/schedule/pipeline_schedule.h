// A schedule with everything a program needs to run it: the order, the complete tables and their proofs.
#pragma once

#include "base/diagnostic.h"
#include "schedule/action.h"
#include "schedule/csv.h"
#include "schedule/generators.h"
#include "schedule/placement.h"
#include "schedule/prove.h"

namespace automodel::schedule {

struct PipelineSchedule {
  Shape shape = {};
  Placement placement = {};
  Schedule order = {};       ///< F, I, W, B and bubbles: what compute_only CSV files hold
  Schedule training = {};    ///< the complete table of a training step
  Schedule evaluation = {};  ///< the complete table of the same schedule's forwards
  Proof proof = {};          ///< of `training`; its memory figures size the executor's buffers
  Proof evaluation_proof = {};
  Diagnostics problems = {};  ///< everything wrong with the schedule; where there is any, the rest may be unfinished
  bool ok() const { return problems.empty(); }
};

/// Checks the request, makes the order, validates, lowers and proves it, for training and for evaluation. Problems are
/// those of check_request; a generated table that fails a later check is a defect (InternalError).
PipelineSchedule make_schedule(const Generator& generator, const Request& request);
/// The same for a table from a CSV file. `shape` is what the recipe asks for. Where the format is kComputeComms the
/// training table is the file's own. Problems are those of read_csv, validate, lower and prove.
PipelineSchedule make_schedule(CsvTable table, CsvFormat format, const Shape& shape);

}  // namespace automodel::schedule
