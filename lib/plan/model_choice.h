// Resolves the recipe's model: inline configuration, folder, file, or a name in the local Hugging Face cache.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "pictures/processor.h"
#include "plan/located.h"

namespace automodel::plan {

struct ModelChoice {
  arch::ModelSpec spec = {};
  arch::Layout layout = {};
  std::string name = {};              ///< for display: the path, the name, or "inline"
  std::filesystem::path folder = {};  ///< folder with weights and tokenizer; empty for an inline configuration
  bool load_weights = false;          ///< from `folder`; otherwise weights are initialised from the seed
  std::optional<pictures::Processor> processor = {};  ///< of a model with a vision tower (plan/vision_choice.h)
  std::string config_text = {};                       ///< the config.json with overrides applied
};

/// Reads the configuration. Problems: missing-file, model-not-found, and those of arch::parse_hf_config(). Unless
/// `training`, names from the catalogue are accepted too, and a model that cannot be found is only a warning
/// (model-unknown).
std::optional<ModelChoice> choose_model(const config::LoadedRecipe& recipe, Located& report, bool training);

}  // namespace automodel::plan
