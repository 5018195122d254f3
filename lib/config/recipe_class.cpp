#include "config/recipe_class.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

namespace automodel::config {
namespace {

struct Purpose {
  std::string_view word;  ///< in the class name
  std::string_view what;
};
/// First match wins.
constexpr std::array kPurposes = {
    Purpose{"Diffusion", "diffusion models"},
    Purpose{"VLM", "other work with vision-language models"},
    Purpose{"Multimodal", "models of several kinds of input and output"},
    Purpose{"Encoder", "encoders for retrieval"},
    Purpose{"Eagle", "draft models for speculative decoding"},
    Purpose{"DSpark", "draft models for speculative decoding"},
    Purpose{"DFlash", "draft models for speculative decoding"},
    Purpose{"Vispec", "draft models for speculative decoding"},
    Purpose{"JetSpec", "draft models for speculative decoding"},
    Purpose{"Domino", "draft models for speculative decoding"},
};

constexpr std::string_view kSupported = "only language models, also with pictures, are supported";

}  // namespace

std::string_view recipe_class_of(const Value& recipe) {
  const auto* target = recipe.map() != nullptr ? recipe.find("_target_") : &recipe;
  return target != nullptr && target->string() != nullptr ? std::string_view(*target->string()) : std::string_view();
}

std::string_view other_purpose(std::string_view recipe_class) {
  const auto name = recipe_class.substr(recipe_class.find_last_of(".:") + 1);
  const auto* found = std::find_if(kPurposes.begin(), kPurposes.end(),
                                   [&](const Purpose& purpose) { return name.find(purpose.word) != name.npos; });
  return found == kPurposes.end() ? std::string_view{} : found->what;
}

namespace {

/// `model._target_` or `loss_fn._target_` names a class for another purpose, whatever the recipe's class.
bool refuse_other_part(const Node& root, Diagnostics& problems) {
  struct Part {
    std::string_view section;
    Purpose purpose;
  };
  constexpr std::array kParts = {Part{"model", {"WithDrafter", "draft models for speculative decoding"}},
                                 Part{"model", {"BiEncoder", "encoders for retrieval"}},
                                 Part{"model", {"CrossEncoder", "encoders for retrieval"}},
                                 Part{"loss_fn", {"NemotronParse", "Nemotron-Parse, an encoder-decoder of documents"}}};
  if (root.kind != Node::Kind::kMap) return false;
  for (const auto& [section, purpose] : kParts) {
    const auto* part = root.find(section);
    const auto* target =
        part != nullptr && part->value.kind == Node::Kind::kMap ? part->value.find("_target_") : nullptr;
    if (target == nullptr || target->value.kind != Node::Kind::kScalar) continue;
    const auto& text = target->value.text;
    if (text.find(purpose.word) == std::string::npos) continue;
    problems.add("other-recipe", fmt::format("{}._target_", section))
        .says("'{}' is for {}; {}", text, purpose.what, kSupported)
        .hint("this program cannot run it; NeMo AutoModel does")
        .at(target->value.where);
    return true;
  }
  return false;
}

}  // namespace

bool refuse_other_recipe(const Node& root, Diagnostics& problems) {
  if (refuse_other_part(root, problems)) return true;
  // NeMo AutoModel's recipes of diffusion models name no class.
  if (const auto* flow = root.kind == Node::Kind::kMap ? root.find("flow_matching") : nullptr; flow != nullptr) {
    problems.add("other-recipe", "flow_matching")
        .says("flow_matching is for diffusion models; {}", kSupported)
        .hint("this program cannot run it; NeMo AutoModel does")
        .at(flow->where);
    return true;
  }
  const auto* entry = root.kind == Node::Kind::kMap ? root.find("recipe") : nullptr;
  const Node* value = entry == nullptr ? nullptr : &entry->value;
  if (value != nullptr && value->kind == Node::Kind::kMap) {
    const auto* target = value->find("_target_");
    value = target == nullptr ? nullptr : &target->value;
  }
  if (value == nullptr || value->kind != Node::Kind::kScalar) return false;
  const auto& name = value->text;
  const bool pictures = name.ends_with("FinetuneRecipeForVLM") || name.ends_with("KnowledgeDistillationRecipeForVLM");
  const auto purpose = pictures ? std::string_view() : other_purpose(name);
  const bool known = name.find("NextTokenPrediction") != std::string::npos ||
                     name.find(kClassifierRecipe) != std::string::npos || pictures ||
                     name.find("recipes.llm.") != std::string::npos;
  if (purpose.empty() && (known || value->is_null())) return false;
  if (purpose.empty()) {
    problems.add("other-recipe", "recipe")
        .says("'{}' is not a recipe class of NeMo AutoModel for language models", name)
        .hint("TrainFinetuneRecipeForNextTokenPrediction, or leave it out")
        .at(value->where);
    return true;
  }
  problems.add("other-recipe", "recipe")
      .says("'{}' is for {}; {}", value->text, purpose, kSupported)
      .hint("this program cannot run it, also under another recipe class; NeMo AutoModel does")
      .at(value->where);
  return true;
}

}  // namespace automodel::config
