// Whether a table computes what a training step needs: every stage every microbatch once forward and once backward, on
// one rank, in an order that one rank can follow.
#pragma once

#include "base/diagnostic.h"
#include "schedule/action.h"
#include "schedule/origin.h"

namespace automodel::schedule {

enum class Purpose {
  kTraining,    ///< each microbatch forward, and backward as B or as I and later W; stages may mix the two
  kEvaluation,  ///< forwards only
};

/// Every problem of the table for `shape`, each with rank, step and, where `origin` has a text, line and column. Looks
/// at the F, I, W and B of the table and at the stages and microbatches of everything else; whether communication is
/// complete and whether ranks can wait for each other forever is prove()'s question.
///
/// Ids: schedule-ranks (number of rows), schedule-stages (a stage on no rank), schedule-stage-range,
/// schedule-microbatch-range, schedule-stage-twice (one stage on two ranks), schedule-idle-rank, schedule-duplicate,
/// schedule-order (backward before its forward, W before its I), schedule-missing, schedule-backward-in-evaluation,
/// schedule-too-large.
///
/// torch.distributed.pipelining counts sets of actions and so accepts duplicates and microbatches out of range; both
/// are refused here.
Diagnostics validate(const Schedule& schedule, const Shape& shape, const Origin& origin = {},
                     Purpose purpose = Purpose::kTraining);

}  // namespace automodel::schedule
