// `recipe:` names the NeMo AutoModel class that runs the recipe.
#pragma once

#include <string_view>

#include "config/node.h"

namespace automodel::config {

/// In the names of NeMo AutoModel's classes for sequence classification.
inline constexpr std::string_view kClassifierRecipe = "SequenceClassification";

/// In the name of its class for distillation.
inline constexpr std::string_view kDistillationRecipe = "KnowledgeDistillation";

/// The class that a recipe's `recipe` names, directly or as a mapping with `_target_`; empty if none.
std::string_view recipe_class_of(const Value& recipe);

/// What a class trains if not language models, judged by words in its name: "draft models for speculative
/// decoding". Empty for supported classes and for names that do not reveal it.
std::string_view other_purpose(std::string_view recipe_class);

/// If the tree's `recipe` names such a class, directly or as a mapping with `_target_`, reports `other-recipe` and
/// returns true; further messages about the recipe would not help.
bool refuse_other_recipe(const Node& root, Diagnostics& problems);

}  // namespace automodel::config
