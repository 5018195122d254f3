// `recipe:` names the class that reads a recipe in NeMo AutoModel.
#pragma once

#include <string_view>

#include "config/node.h"

namespace automodel::config {

/// What a class trains that is not the next token of a text, by the words in its name: "draft models for speculative
/// decoding". Empty for the classes that are meant here, and for names that say nothing.
std::string_view other_purpose(std::string_view recipe_class);

/// Reports `other-recipe` where the tree's `recipe` names such a class, as a name or as a mapping with `_target_`; true
/// then: nothing else in the recipe is worth a message.
bool refuse_other_recipe(const Node& root, Diagnostics& problems);

}  // namespace automodel::config
