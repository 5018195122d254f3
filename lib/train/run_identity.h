// The identity of a run, and what has changed in its recipe since a checkpoint was saved.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "train/setup.h"

namespace automodel::train {

/// Model, data and method of a run, for the manifest of its checkpoints. Reads a few rows of the data. Independent of
/// the mesh and of where the files are.
checkpoint::RunIdentity identity_of(const Setup& setup);

/// The recipe as checkpoints store it: JSON, with overrides and defaults. Values that came from the environment are
/// stored as written in the recipe, so that no secret is saved.
std::string recorded_recipe(const config::LoadedRecipe& loaded);

/// Lines such as "optimizer.lr 0.001 (was 0.0005)" for each key that both recipes have with different values and that
/// affects the training.
std::vector<std::string> changed_keys(const std::string& now, const std::string& before);

}  // namespace automodel::train
