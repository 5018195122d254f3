// What a tensor-parallel rank holds of each parameter.
#pragma once

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "arch/modules.h"
#include "arch/tensor_plan.h"
#include "model/weights.h"

namespace automodel::parallel {

/// A place among the ranks of a tensor-parallel group.
struct TensorPlace {
  int size = 1;
  int rank = 0;
};

/// The part of `parameter` that rank `place` has under `plan`, and whether the gradient of what all ranks have is to be
/// summed among them. Experts are left whole.
model::Placement tensor_placement(const arch::ModelSpec& spec, const arch::Layout& layout, const arch::TensorPlan& plan,
                                  const arch::Parameter& parameter, TensorPlace place);

}  // namespace automodel::parallel
