// Execution options that trade memory for time, from several sections of the recipe: combined into one value for
// estimates and runtime.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/adapters.h"
#include "base/dtype.h"
#include "config/recipe.h"
#include "plan/located.h"
#include "plan/values/activations.h"
#include "plan/values/float8.h"

namespace automodel::plan {

/// Parts of a layer that are recomputed in the backward pass (Megatron Core's recompute_modules).
struct RecomputeModules {
  bool core_attention = false;  ///< the attention kernel; queries, keys and values are kept
  bool norms = false;
  bool latent_up = false;  ///< up-projection of latent attention's low-rank vectors to heads
  bool mlp = false;        ///< of dense layers
  bool experts = false;    ///< including dispatch and combine
  bool expert_activation = false;
  bool shared_experts = false;
  bool any() const {
    return core_attention || norms || latent_up || mlp || experts || expert_activation || shared_experts;
  }
};

/// Quantised frozen weights under adapters.
struct QuantizationPlan {
  arch::QuantizedBase base = {};
  DType compute = DType::kBFloat16;  ///< dtype of matmuls with them
};

struct Levers {
  Recompute recompute = Recompute::kNone;
  /// This many of the microbatches in flight on a rank keep all activations: forward number k recomputes if k mod (peak
  /// number in flight) is at least this. Empty: every microbatch recomputes. Megatron Core's
  /// num_microbatches_with_partial_activation_checkpoints.
  std::optional<int> kept_microbatches = {};
  /// The head's weight gradient is deferred to the stage's last backward pass, for this many microbatches (0: all).
  std::optional<int> deferred_head = {};
  /// A backward pass sends its input gradient before it computes weight gradients.
  bool delay_weight_gradients = false;
  /// Matmuls run in this dtype; the residual stream keeps its own.
  std::optional<DType> autocast = {};
  std::optional<Float8Plan> float8 = {};
  std::optional<QuantizationPlan> quantization = {};
  /// Dynamic loss scale of float16 training.
  bool loss_scaler = false;
  /// A non-finite gradient stops the run before the optimizer step.
  bool check_gradients = true;
  /// Low-precision GEMMs accumulate weight gradients directly in the gradient's dtype. Megatron Core's
  /// gradient_accumulation_fusion.
  bool fused_accumulation = false;
  /// On a GPU, use only kernels with a deterministic summation order.
  bool deterministic = false;
  std::optional<ActivationOffloading> offloading = {};
  /// Tokens are dispatched to experts in two halves, one being computed while the other is in transit.
  bool overlap_experts = false;
  /// Experts' weight gradients are computed while input gradients are sent back.
  bool late_expert_gradients = false;
  /// NeMo AutoModel's scale_grads_in_schedule: the mean over microbatches of each one's mean loss.
  bool scale_in_schedule = false;
  std::optional<double> max_norm = {};  ///< gradient norm clipping; empty: none
  std::int64_t ignore_label = -100;
  double logit_softcap = 0;    ///< of the logits before the loss, if the recipe sets it; 0: none
  double embedding_noise = 0;  ///< NEFTune's alpha
  /// Step size of the router correction biases, moved against expert load; 0 disables the update.
  double router_bias_step = 0;
  /// Head and loss are computed in chunks of this many tokens (0: chosen by arch::loss_chunk()); empty: not chunked.
  std::optional<std::int64_t> loss_chunk = {};
  /// Forward and backward of a microbatch are captured once as a CUDA graph and replayed (plan/capture_choice.h).
  bool captured = false;
  std::optional<std::string> not_captured = {};  ///< why not, where the recipe asks for it
};

/// Context that the options are checked against.
struct LeverRequest {
  int pp = 1;  ///< pipeline ranks
  DType compute = DType::kFloat32;
  bool cuda = false;
  std::optional<int> layers = {};  ///< of the model; empty if its sizes are unknown
  bool head_rows_normed = false;   ///< arch::ModelSpec
  bool router_biases = true;       ///< the model's routers have correction biases, or its sizes are unknown
};
Levers plan_levers(const config::LoadedRecipe& recipe, const LeverRequest& request, Located& report);
/// Parts of layers to recompute. For planning only; rejected if `training`.
RecomputeModules recompute_modules(const config::Recipe& recipe, bool training, Located& report);

}  // namespace automodel::plan
