// Bytes of state per parameter, for this program or for the stack that a plan assumes.
#pragma once

#include "plan/sharding.h"
#include "plan/training_plan.h"

namespace automodel::estimate {

/// Optimizer state tensors per parameter: for matrices that it updates as a whole, and for the rest.
struct Moments {
  int of_matrices = 2;
  int of_rest = 2;
  double tensors(double elements, double in_matrices) const {
    return of_rest * (elements - in_matrices) + of_matrices * in_matrices;
  }
};
Moments moments_of(const plan::OptimizerPlan& optimizer);

/// Bytes per element.
struct StateBytes {
  double values = 0;      ///< weights used in computation
  double master = 0;      ///< weights updated by the optimizer
  double moment = 0;      ///< of each optimizer state tensor
  double gradient = 0;    ///< unreduced gradients, accumulated over microbatches
  double reduced = 0;     ///< this rank's shard of their sum
  double travelling = 0;  ///< copy of unreduced gradients made for communication; 0: reduced in place
  /// Sharded gradients are reduced unit by unit in the last backward pass: each unit's unreduced gradients are freed as
  /// its sum arrives, and the previous step's reduced gradients are freed at the start. Otherwise all reductions are in
  /// progress at the end.
  bool by_unit = false;
  double reserved = 0;       ///< fraction of tensor memory that a GPU allocator holds in addition
  double beside_logits = 0;  ///< bytes per logit that the loss needs beside them
  /// Expert rows, residual streams and whole parameters are kept only once.
  bool lean = false;
};
/// What this program, or the stack that a plan assumes, stores in parts.
plan::Sharding stored_sharding(const plan::TrainingPlan& plan);
/// The dtypes that the bytes are of: the plan's, or those of the stack that it assumes.
plan::TypePlan state_types(const plan::TrainingPlan& plan, const plan::Sharding& sharding);
StateBytes state_bytes(const plan::TrainingPlan& plan, const plan::Sharding& sharding);
/// Bytes that a checkpoint keeps, over all ranks: weights as they are computed with, and what is trained of master
/// weights and moments. Consolidated weights are not counted.
double saved_bytes(const plan::TrainingPlan& plan);

}  // namespace automodel::estimate
