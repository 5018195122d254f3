// What a model with a vision tower needs besides its decoder: the processor of its pictures, and what stands against
// it.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "mesh/mesh_sizes.h"
#include "plan/model_choice.h"

namespace automodel::plan {

/// The folder with the processor's settings; empty if there is none of that name.
std::filesystem::path processor_folder(const config::LoadedRecipe& recipe, const ModelChoice& model);

/// Reads the processor's settings: from the folder that the recipe's `processor` section names, else from the model's.
/// Problems: missing-file (without `training` only of a folder that is named beside a model that is here),
/// unsupported-model.
void choose_processor(const config::LoadedRecipe& recipe, ModelChoice& model, Located& report, bool training);

/// How its pictures stand in rows; empty for a model without a tower.
std::optional<pictures::PictureTokens> picture_tokens(const ModelChoice& model);

/// Refuses what does not work with pictures, a class of model that takes pictures for a model without a tower, and
/// warns of keys that need a tower. `model`: null for a plan without sizes, for which the class says that it has one.
void check_vision(const config::LoadedRecipe& recipe, const ModelChoice* model, const mesh::MeshSizes& sizes,
                  bool training, Located& report);

/// The refusal of a command that has no pictures to give: unsupported-model; empty for a model without a tower.
std::optional<Diagnostic> refuse_pictures(const config::LoadedRecipe& recipe, const ModelChoice& model,
                                          std::string_view command);

}  // namespace automodel::plan
