// What stands against models whose layers differ in their heads, have inputs of their own, or use keys of other layers
// (Gemma 4).
#pragma once

#include "arch/model_spec.h"
#include "mesh/mesh_sizes.h"
#include "plan/located.h"

namespace automodel::plan {

/// Refuses meshes on which such a model is not trained: unsupported-option.
void check_unlike_layers(const arch::ModelSpec& spec, const mesh::MeshSizes& sizes, bool training, Located& report);

}  // namespace automodel::plan
