// Settings of a recipe that have no effect because of its other settings.
#pragma once

#include "config/recipe.h"
#include "mesh/mesh_sizes.h"
#include "plan/located.h"

namespace automodel::plan {

/// Warns (no-effect) of pipeline and expert settings without ranks to apply them to, and of a ranking of checkpoints
/// by a validation set that does not exist. Refuses (bad-value) virtual pipeline stages without a pipeline.
void warn_of_idle_sections(const config::Recipe& recipe, const mesh::MeshSizes& sizes, Located& report);

/// Warns (no-effect) that the software stack and dispatcher only matter for GPU estimates; for plans for a CPU.
void warn_of_gpu_estimates(const config::HardwareConfig& hardware, Located& report);

}  // namespace automodel::plan
