// Checks that a table computes exactly one training step: every stage runs every microbatch once forward and once
// backward, on one rank, in an order that respects dependencies within the rank.
#pragma once

#include "base/diagnostic.h"
#include "schedule/action.h"
#include "schedule/origin.h"

namespace automodel::schedule {

enum class Purpose {
  kTraining,    ///< each microbatch forward, then backward as B or as I and later W; stages may mix the two
  kEvaluation,  ///< forwards only
};

/// All problems of the table for `shape`, each with rank, step and, if `origin` has source text, line and column.
/// Checks F, I, W and B, and the stage and microbatch ranges of all other actions. Completeness of communication and
/// deadlocks are left to prove().
///
/// Ids: schedule-ranks (number of rows), schedule-stages (a stage on no rank), schedule-stage-range,
/// schedule-microbatch-range, schedule-stage-twice (one stage on two ranks), schedule-idle-rank, schedule-duplicate,
/// schedule-order (backward before its forward, W before its I), schedule-missing, schedule-backward-in-evaluation,
/// schedule-too-large.
///
/// torch.distributed.pipelining compares sets of actions and therefore accepts duplicates and out-of-range
/// microbatches; both are rejected here.
Diagnostics validate(const Schedule& schedule, const Shape& shape, const Origin& origin = {},
                     Purpose purpose = Purpose::kTraining);

}  // namespace automodel::schedule
