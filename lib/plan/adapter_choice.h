// Which of a model's weights get low-rank adapters (the recipe's peft section).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arch/adapters.h"
#include "plan/located.h"
#include "plan/model_choice.h"

namespace automodel::plan {

/// Linear layers of a decoder layer whose inputs must be kept for weight gradients: all of them, or those with trained
/// adapters or unfrozen weights.
struct TrainedProducts {
  bool queries = true;    ///< query, key and value projections
  bool output = true;     ///< attention's output projection
  bool up = true;         ///< first projections of the MLP or of shared experts
  bool down = true;       ///< their last
  bool expert_up = true;  ///< of routed experts
  bool expert_down = true;
};
inline constexpr TrainedProducts kNoProducts = {false, false, false, false, false, false};
/// The product of a decoder layer's weight, or of its adapter.
bool TrainedProducts::*product_of(arch::Part part);

struct AdapterPlan {
  arch::AdapterSpec spec = {};
  std::vector<std::string> modules = {};     ///< in the form of the PEFT library's target_modules
  std::vector<arch::Parameter> all = {};     ///< parameters of the model and its adapters
  std::int64_t elements = 0;                 ///< trained elements
  std::vector<TrainedProducts> layers = {};  ///< by layer
};

/// Fraction of tokens that pass through an adapter; for an expert's adapter, those routed to that expert.
double token_share(const arch::ModelSpec& spec, const arch::Parameter& adapter);
/// Whether two neighbouring A's read the same input, so that one product serves both (ops/low_rank.h).
bool share_input(const arch::Parameter& a, const arch::Parameter& b);

/// Empty without a peft section. `base`: quantisation of the frozen weights, if any. Problems: adapter-target (nothing
/// matches; a head tied to the embedding; with `training` also a match that cannot have an adapter: experts stored in
/// one tensor or divided by width, a vision tower's modules with dropout), bad-value (an invalid pattern),
/// quantized-weights (no weight of the model can be quantised). Warnings: no-effect (a pattern that matches nothing;
/// modules that freeze_config freezes), adapter-base (no folder provides the base weights).
std::optional<AdapterPlan> choose_adapters(const config::LoadedRecipe& recipe, const ModelChoice& model,
                                           const std::optional<arch::QuantizedBase>& base, bool training,
                                           Located& report);

}  // namespace automodel::plan
