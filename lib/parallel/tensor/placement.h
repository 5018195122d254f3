// The part of each parameter that a tensor-parallel rank holds.
#pragma once

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "arch/modules.h"
#include "arch/tensor_plan.h"
#include "model/weights.h"

namespace automodel::parallel {

/// A rank's place in a tensor-parallel group.
struct TensorPlace {
  int size = 1;
  int rank = 0;
};

/// The part of `parameter` at `place` under `plan`, and whether the gradients of replicated values must be summed over
/// ranks. Experts are left whole.
model::Placement tensor_placement(const arch::ModelSpec& spec, const arch::Layout& layout, const arch::TensorPlan& plan,
                                  const arch::Parameter& parameter, TensorPlace place);

}  // namespace automodel::parallel
