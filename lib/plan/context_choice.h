// The context-parallel communication pattern.
#pragma once

#include "arch/tensor_plan.h"
#include "mesh/mesh_sizes.h"
#include "plan/located.h"
#include "plan/model_choice.h"

namespace automodel::plan {

/// Two levels whose sizes multiply to cp_size: `heads` adjacent ranks trade tokens for heads (all-to-all), and `keys`
/// such groups exchange keys and values.
struct ContextPlan {
  int heads = 1;
  int keys = 1;
  bool gather = false;  ///< all-gather keys and values instead of passing them around a ring
};

/// Derived from model_parallel.cp_comm_type and hierarchical_context_parallel_sizes. Problems: missing-key and
/// bad-value (level sizes), indivisible (heads by the ranks that share them).
ContextPlan choose_context_plan(const config::LoadedRecipe& loaded, const ModelChoice* model,
                                const arch::TensorPlan& tensor, const mesh::MeshSizes& sizes, Located& report);

}  // namespace automodel::plan
