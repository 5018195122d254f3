// Which parameters are frozen (the recipe's freeze_config section, and what no gradient reaches: the weights of token
// indices), and the resulting savings.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "arch/towers.h"
#include "plan/adapter_choice.h"
#include "plan/located.h"
#include "plan/model_choice.h"
#include "plan/model_split.h"

namespace automodel::plan {

struct TrainingPlan;

struct FrozenPart {
  std::set<std::string> names = {};          ///< of the frozen parameters
  std::vector<arch::Parameter> all = {};     ///< all parameters of the model, with frozen ones marked
  std::vector<std::size_t> places = {};      ///< of the frozen ones in `all`
  std::int64_t elements = 0;                 ///< frozen elements
  std::vector<TrainedProducts> layers = {};  ///< by layer
  bool embedding = false, head = false;      ///< whether that weight is frozen
  /// By layer: fraction of the matmul weights' elements that is trained.
  std::vector<double> trained_products = {};
  /// Freezes the parameter at a place in `all`.
  void freeze(std::size_t place);
};

/// What freeze_config freezes of a model with a vision tower, by words in modules' paths.
struct FrozenWords {
  bool tower = false, decoder = false;
  /// The recipe's key if the module is frozen so, else empty.
  std::string_view key_of(std::string_view module) const;
};
FrozenWords frozen_words(const config::Recipe& recipe, const ModelChoice& model);

/// Empty if nothing is frozen, and with adapters, beside which all of the model is. Problems: freeze-target (a selector
/// matches nothing, or everything would be frozen), unsupported-option (combined with adapters).
std::optional<FrozenPart> choose_frozen(const config::LoadedRecipe& recipe, const ModelChoice& model, Located& report);

/// Frozen elements of a stage on one rank of its tp and ep groups.
struct FrozenElements {
  double dense = 0, expert = 0;
  double dense_matrices = 0, expert_matrices = 0;
  std::vector<double> layers = {};  ///< by layer of the model
};
FrozenElements frozen_elements(const TrainingPlan& plan, const StagePart& part);

// What part of the model's own weights is trained, not counting adapters: with adapters, none.

/// Fraction of a layer's matmul weights that is trained.
double trained_share(const TrainingPlan& plan, int layer);
bool trains_embedding(const TrainingPlan& plan);
bool trains_head(const TrainingPlan& plan);
/// Whether anything below `module` is trained, which is a tower or a projector; its adapters count.
bool trains_tower(const TrainingPlan& plan, const std::string& module);
/// Whether the activations of towers are recomputed: those that are trained here keep theirs.
bool recomputes_towers(const TrainingPlan& plan);
/// Forward FLOPs per picture of the adapters of a tower or a projector.
double adapter_flops(const TrainingPlan& plan, const arch::Tower& tower);
/// FLOPs per microbatch saved by not computing weight gradients: a third of the GEMMs with frozen weights.
double frozen_flops(const TrainingPlan& plan, const StagePart& part);

}  // namespace automodel::plan
