// Chooses how each module is divided among tensor-parallel ranks and checks that the model allows it.
#pragma once

#include <cstdint>
#include <string>

#include "arch/tensor_plan.h"
#include "mesh/mesh_sizes.h"
#include "plan/located.h"
#include "plan/model_choice.h"

namespace automodel::plan {

/// Tokens per sequence if the recipe sets it, and the key that does.
struct SequenceLength {
  std::int64_t tokens = 0;
  std::string key = {};
};

/// The tensor-parallel plan of a recipe: `distributed.tp_plan` as a mapping of module patterns to styles, `auto` (the
/// model's own plan in transformers) or absent (the default plan). Without tensor parallelism the plan is empty.
/// Problems: indivisible (heads, key-value heads, feed-forward width, tokens under sequence parallelism),
/// unknown-style, unknown-tp-plan, tp-plan (styles that do not fit together), unknown-module (a pattern that matches
/// nothing).
arch::TensorPlan choose_tensor_plan(const config::LoadedRecipe& loaded, const ModelChoice& model,
                                    const mesh::MeshSizes& sizes, const SequenceLength& length, Located& report);

/// Whether the recipe requests sequence parallelism, by NeMo AutoModel's key or Megatron's.
bool wants_sequence_parallel(const config::Recipe& recipe);

}  // namespace automodel::plan
