#include "plan/frozen_part.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <fnmatch.h>

#include "arch/counts.h"
#include "base/spelling.h"
#include "plan/model_names.h"
#include "plan/training_plan.h"

namespace automodel::plan {
namespace {

using config::ModuleSelector;

class Selectors {
 public:
  Selectors(std::string key, const std::vector<ModuleSelector>& list)
      : key_(std::move(key)), list_(list), used_(list.size(), false) {}

  /// Whether the module or one of its ancestors is selected.
  bool match(std::string_view module) {
    bool any = false;
    for (std::size_t end = 0; end != std::string_view::npos;) {
      end = module.find('.', end == 0 ? 0 : end + 1);
      any = match_one(std::string(module.substr(0, end))) || any;
    }
    return any;
  }

  /// As in NeMo AutoModel, a selector that matches nothing is an error.
  void refuse_unused(const std::vector<std::string_view>& modules, Located& report) const {
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (!used_[i])
        report.refuse("freeze-target", key_)
            .says("no module of this model matches '{}'", text_of(list_[i]))
            .hint(suggestion(text_of(list_[i]), modules));
  }

 private:
  static const std::string& text_of(const ModuleSelector& selector) {
    return selector.path() ? *selector.path() : *selector.glob();
  }
  bool match_one(const std::string& module) {
    bool any = false;
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const bool here = list_[i].path() ? module == *list_[i].path()
                                        : fnmatch(list_[i].glob()->c_str(), module.c_str(), FNM_NOESCAPE) == 0;
      if (here) used_[i] = any = true;
    }
    return any;
  }

  std::string key_;
  const std::vector<ModuleSelector>& list_;
  std::vector<bool> used_;
};

/// Whether a module's path has one of the words by which NeMo AutoModel knows a tower.
bool has_word(std::string_view module, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](auto word) { return module.find(word) != module.npos; });
}

bool has_index(const arch::Layout& layout) {
  return std::any_of(layout.kinds.begin(), layout.kinds.end(), [](const arch::LayerLayout& kind) {
    return std::any_of(kind.parameters.begin(), kind.parameters.end(),
                       [](const auto& parameter) { return arch::is_of_index(parameter.part); });
  });
}

void count_products(FrozenPart& out, int layers) {
  out.layers.assign(static_cast<std::size_t>(layers), kNoProducts);
  std::vector<double> all(static_cast<std::size_t>(layers), 0.0), trained = all;
  for (const auto& parameter : out.all) {
    if (parameter.layer < 0 || !arch::is_hidden_matrix(parameter)) continue;
    const auto layer = static_cast<std::size_t>(parameter.layer);
    const auto elements = static_cast<double>(parameter.shape.elements());
    all[layer] += elements;
    if (!parameter.trained()) continue;
    trained[layer] += elements;
    out.layers[layer].*product_of(parameter.part) = true;
  }
  for (std::size_t layer = 0; layer < all.size(); ++layer)
    out.trained_products.push_back(all[layer] > 0 ? trained[layer] / all[layer] : 1);
}

}  // namespace

void FrozenPart::freeze(std::size_t place) {
  auto& parameter = all[place];
  parameter.frozen = true;
  names.insert(parameter.fqn);
  places.push_back(place);
  embedding = embedding || parameter.role == arch::Role::kEmbedding;
  head = head || (parameter.role == arch::Role::kHead && parameter.shape.rank() == 2);
  if (parameter.tied_to.empty()) elements += parameter.shape.elements();
}

std::string_view FrozenWords::key_of(std::string_view module) const {
  if (tower && has_word(module, {"vision", "visual", "image_encoder"})) return "freeze_config.freeze_vision_tower";
  return decoder && has_word(module, {"language", "text", "llm"}) ? "freeze_config.freeze_language_model" : "";
}

namespace {

/// Whether freeze_config names modules, of any model.
bool names_modules(const config::Recipe& recipe) {
  const auto& section = recipe.freeze_config();
  return section && (!section->freeze_modules->empty() || !section->unfreeze_modules->empty());
}

}  // namespace

FrozenWords frozen_words(const config::Recipe& recipe, const ModelChoice& model) {
  const auto& section = recipe.freeze_config();
  if (!section || !model.spec.vision) return {};
  return {.tower = section->freeze_vision_tower().value_or(!names_modules(recipe)),
          .decoder = section->freeze_language_model().value_or(false)};
}

std::optional<FrozenPart> choose_frozen(const config::LoadedRecipe& recipe, const ModelChoice& model, Located& report) {
  const std::string key = "freeze_config";
  const auto& section = recipe.recipe.freeze_config();
  const bool named = names_modules(recipe.recipe);
  const auto words = frozen_words(recipe.recipe, model);
  if (recipe.recipe.peft()) {
    if (named)
      report.refuse("unsupported-option", key)
          .says("with adapters, no module of the model itself is trained")
          .hint("peft.target_modules and peft.exclude_modules say where adapters are trained");
    return std::nullopt;
  }
  const bool asked = named || words.tower || words.decoder;
  if (!asked && !has_index(model.layout)) return std::nullopt;
  const std::vector<ModuleSelector> none;
  Selectors freeze(key + ".freeze_modules", section ? section->freeze_modules() : none),
      spare(key + ".unfreeze_modules", section ? section->unfreeze_modules() : none);
  FrozenPart out;
  out.all = arch::parameters(model.layout);
  std::map<std::string, std::pair<bool, bool>> stored;  // by storage: (frozen, unfrozen again)
  std::set<std::string> modules;
  const auto storage = [](const arch::Parameter& parameter) -> const std::string& {
    return parameter.tied_to.empty() ? parameter.fqn : parameter.tied_to;
  };
  if (asked)  // an index alone needs no names: models with one have 60,000 parameters
    for (const auto& parameter : out.all) {
      auto& [frozen, spared] = stored[storage(parameter)];
      const auto module = std::string(parameter.module());
      frozen = freeze.match(module) || !words.key_of(module).empty() || frozen;
      spared = spare.match(module) || spared;
      modules.insert(module);
    }
  const std::vector<std::string_view> names(modules.begin(), modules.end());
  freeze.refuse_unused(names, report);
  spare.refuse_unused(names, report);
  bool any_trained = false;
  for (std::size_t place = 0; place < out.all.size(); ++place) {
    const auto& parameter = out.all[place];
    const auto found = stored.find(storage(parameter));
    const bool chosen = found != stored.end() && found->second.first && !found->second.second;
    // PyTorch's optimizers skip a weight without a gradient; with one of zero, its decay would wear an index away.
    if (chosen || (parameter.trainable && arch::is_of_index(parameter.part))) out.freeze(place);
    any_trained = any_trained || parameter.trained();
  }
  if (!any_trained)
    report.refuse("freeze-target", key + ".freeze_modules")
        .says("no module of the model would be trained")
        .hint("name exceptions that are trained in unfreeze_modules");
  if (out.names.empty()) return std::nullopt;
  count_products(out, model.layout.layer_count());
  return out;
}

FrozenElements frozen_elements(const TrainingPlan& plan, const StagePart& part) {
  FrozenElements out;
  out.layers.assign(static_cast<std::size_t>(plan.model->layout.layer_count()), 0.0);
  const double expert_ranks = plan.mesh.sizes().ep * plan.expert_tensor;
  for (const auto place : plan.frozen->places) {
    const auto& info = plan.frozen->all[place];
    if (!part.has(info)) continue;
    const double here =
        static_cast<double>(info.shape.elements()) / (info.is_expert() ? expert_ranks : tensor_ranks(plan, info));
    (info.is_expert() ? out.expert : out.dense) += here;
    if (arch::is_hidden_matrix(info)) (info.is_expert() ? out.expert_matrices : out.dense_matrices) += here;
    if (info.layer >= 0) out.layers[static_cast<std::size_t>(info.layer)] += here;
  }
  return out;
}

double trained_share(const TrainingPlan& plan, int layer) {
  if (plan.adapters) return 0;
  return plan.frozen ? plan.frozen->trained_products[static_cast<std::size_t>(layer)] : 1;
}

bool trains_embedding(const TrainingPlan& plan) {
  return !plan.adapters && !(plan.frozen && plan.frozen->embedding);
}

bool trains_head(const TrainingPlan& plan) {
  return !plan.adapters && !(plan.frozen && plan.frozen->head);
}

bool trains_tower(const TrainingPlan& plan, const std::string& module) {
  const auto* all = plan.adapters ? &plan.adapters->all : plan.frozen ? &plan.frozen->all : nullptr;
  if (all == nullptr || !plan.model->spec.vision) return !plan.adapters;
  return std::any_of(all->begin(), all->end(),
                     [&](const auto& info) { return info.trained() && info.fqn.starts_with(module + "."); });
}

bool recomputes_towers(const TrainingPlan& plan) {
  return plan.execution.activations.recompute == Recompute::kFull && !plan.model->spec.vision;
}

double adapter_flops(const TrainingPlan& plan, const arch::Tower& tower) {
  double elements = 0;
  if (plan.adapters)
    for (const auto& info : plan.adapters->all)
      if (!info.adapts.empty() && info.adapts.starts_with(tower.fqn + "."))
        elements += static_cast<double>(info.shape.elements());
  return 2 * elements * static_cast<double>(tower.tokens);
}

double frozen_flops(const TrainingPlan& plan, const StagePart& part) {
  double out = part.has_head && !trains_head(plan) ? arch::head_flops_per_token(plan.model->spec) : 0;
  for (const int layer : part.layers)
    if (const double share = trained_share(plan, layer); share < 1)
      out += (1 - share) * arch::layer_product_flops_per_token(plan.model->spec, plan.model->layout, layer);
  double towers = 0;  // a frozen one has no backward pass: two thirds are saved; beside adapters, one
  for (const auto& tower : towers_of(*plan.model, part)) {
    if (!plan.model->spec.vision) continue;
    if (!trains_tower(plan, tower.fqn))
      towers += 2 * tower.flops;
    else if (plan.adapters)
      towers += static_cast<double>(tower.tokens) * tower.token_flops;
  }
  return (out * static_cast<double>(plan.batch.planned_length()) + towers) * plan.batch.microbatch;
}

}  // namespace automodel::plan
