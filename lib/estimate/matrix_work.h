// Computation and communication of a matrix optimizer (Muon) per step.
#pragma once

#include "estimate/hardware.h"
#include "plan/training_plan.h"

namespace automodel::estimate {

/// Work of one rank for the matrices of one stage. Each matrix is updated by one of the ranks that hold shards or
/// copies of it; with tensor parallelism, by one rank of that group. Replicas of shards repeat the same work.
struct MatrixWork {
  double flops = 0;
  double dense = 0;   ///< bytes sent among the ranks that share dense parameters
  double expert = 0;  ///< bytes sent among the ranks that hold the same experts
  double tensor = 0;  ///< bytes sent among tensor-parallel ranks
  MatrixWork& operator+=(const MatrixWork& other);
};
/// Zero for other optimizers. Needs the plan's pipeline.
MatrixWork matrix_work(const plan::TrainingPlan& plan, int stage);

/// Links among the ranks that share dense parameters, that hold the same experts, and that are tensor-parallel.
struct MatrixLinks {
  Link dense, expert, tensor;
};
/// Seconds of this work on the slowest pipeline rank.
double matrix_seconds(const plan::TrainingPlan& plan, const Hardware& hardware, const MatrixLinks& links);

}  // namespace automodel::estimate
