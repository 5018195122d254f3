// Switches that trade memory and time, from several sections of the recipe: one value that the plan's estimates and the
// runtime both read.
#pragma once

#include <optional>

#include "base/dtype.h"
#include "config/recipe.h"
#include "plan/located.h"

namespace automodel::plan {

/// What a layer keeps between its forward and its backward pass.
enum class Recompute {
  kNone,       ///< everything
  kFull,       ///< its input; the whole layer is computed again (Chen et al. 2016)
  kSelective,  ///< what attention needs; norm, products and activation of the MLP are computed again
};

struct Levers {
  Recompute recompute = Recompute::kNone;
  /// Of the microbatches that a rank has in flight, so many keep everything: forward number k recomputes where
  /// k mod (largest number in flight) is at least this. Absent: every microbatch recomputes. Source: Megatron Core,
  /// num_microbatches_with_partial_activation_checkpoints.
  std::optional<int> kept_microbatches = {};
  /// The head's weight gradient waits until the stage's last backward pass, for so many microbatches of a run (0: all).
  std::optional<int> deferred_head = {};
  /// A backward pass sends its input gradient on before it computes weight gradients.
  bool delay_weight_gradients = false;
  /// Matrix products run in this type; the residual stream keeps its own.
  std::optional<DType> autocast = {};
  /// Dynamic loss scale of float16 training.
  bool loss_scaler = false;
  /// A gradient that is not finite stops the run before the optimizer.
  bool check_gradients = true;
};

/// Reads and checks the switches. `pp` is the number of pipeline ranks.
Levers plan_levers(const config::LoadedRecipe& recipe, int pp, DType compute, Located& report);

}  // namespace automodel::plan
