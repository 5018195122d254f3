// A schedule with everything needed to run it: the order, the complete tables, and their proofs.
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
  Schedule order = {};       ///< F, I, W, B and bubbles, as in compute_only CSV files
  Schedule training = {};    ///< the complete table of a training step
  Schedule evaluation = {};  ///< the complete table for forwards only
  Proof proof = {};          ///< for `training`; its memory figures size the executor's buffers
  Proof evaluation_proof = {};
  Diagnostics problems = {};  ///< if not empty, the other fields may be incomplete
  bool ok() const { return problems.empty(); }
};

/// Checks the request, then generates, validates, lowers and proves the schedule for training and evaluation. Problems
/// are those of check_request(); a generated table that fails a later check is a bug (InternalError).
PipelineSchedule make_schedule(const Generator& generator, const Request& request);
/// The same for a table from a CSV file. `shape` is the shape the recipe requires. With kComputeComms, the file's table
/// is the training table. Problems are those of read_csv(), validate(), lower() and prove().
PipelineSchedule make_schedule(CsvTable table, CsvFormat format, const Shape& shape);

}  // namespace automodel::schedule
