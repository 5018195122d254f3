// Execution options that trade memory for time, from several sections of the recipe: one value for estimates and
// runtime.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/adapters.h"
#include "base/dtype.h"
#include "config/recipe.h"
#include "plan/located.h"

namespace automodel::plan {

/// What a layer keeps between its forward and its backward pass.
enum class Recompute {
  kNone,       ///< everything
  kFull,       ///< its input; the whole layer is computed again (Chen et al. 2016)
  kSelective,  ///< what attention needs; norm and MLP are recomputed
};

/// Parts of a layer that the backward pass recomputes (Megatron Core's
/// recompute_modules).
struct RecomputeModules {
  bool core_attention = false;  ///< a fused kernel's result; queries, keys and values are kept
  bool norms = false;
  bool latent_up = false;  ///< heads from latent attention's low-rank parts
  bool mlp = false;        ///< of dense layers
  bool experts = false;    ///< with their way there and back
  bool expert_activation = false;
  bool shared_experts = false;
  bool any() const {
    return core_attention || norms || latent_up || mlp || experts || expert_activation || shared_experts;
  }
};

/// Activations of the first layers are kept in host memory for the backward pass. Source: Megatron Core,
/// cpu_offloading.
struct ActivationOffloading {
  int layers = 0;
  bool double_buffering = false;     ///< they come back into two buffers that stay
  bool retain_host_buffers = false;  ///< page-locked buffers are kept between microbatches and steps
};

/// Linear layers with 8-bit operands.
struct Float8Plan {
  config::Float8RecipeName recipe = config::Float8RecipeName::kTensorwise;
  std::vector<std::string> left_out = {};  ///< modules in whose name one of these occurs
  bool emulate = false;
};

/// Frozen weights below adapters in few bits.
struct QuantizationPlan {
  arch::QuantizedBase base = {};
  DType compute = DType::kBFloat16;  ///< that products with them run in
};

struct Levers {
  Recompute recompute = Recompute::kNone;
  /// This many of the microbatches in flight on a rank keep everything: forward number k recomputes where k mod
  /// (largest number in flight) is at least this. Absent: every microbatch recomputes. Source: Megatron Core,
  /// num_microbatches_with_partial_activation_checkpoints.
  std::optional<int> kept_microbatches = {};
  /// The head's weight gradient is deferred to the stage's last backward pass, for this many microbatches (0: all).
  std::optional<int> deferred_head = {};
  /// A backward pass sends its input gradient on before it computes weight gradients.
  bool delay_weight_gradients = false;
  /// Matmuls run in this type; the residual stream keeps its own.
  std::optional<DType> autocast = {};
  std::optional<Float8Plan> float8 = {};
  std::optional<QuantizationPlan> quantization = {};
  /// Dynamic loss scale of float16 training.
  bool loss_scaler = false;
  /// A gradient that is not finite stops the run before the optimizer.
  bool check_gradients = true;
  /// Weight gradients of low-precision GEMMs are accumulated in the gradient's type. Source: Megatron Core,
  /// gradient_accumulation_fusion.
  bool fused_accumulation = false;
  /// On a GPU, only kernels with a deterministic summation order.
  bool deterministic = false;
  std::optional<ActivationOffloading> offloading = {};
  /// Tokens are sent to experts in two halves: one is computed while the other is in transit.
  bool overlap_experts = false;
  /// Experts' weight gradients are computed while tokens are sent back.
  bool late_expert_gradients = false;
  /// NeMo AutoModel's scale_grads_in_schedule: the mean over microbatches of each one's mean loss.
  bool scale_in_schedule = false;
  std::optional<double> max_norm = {};  ///< of gradients; absent: they are not clipped
  std::int64_t ignore_label = -100;
  double logit_softcap = 0;    ///< before the loss, where the recipe gives one
  double embedding_noise = 0;  ///< NEFTune's alpha
  /// What a step moves the correction biases of routers by, against the load of their experts; 0: they stay.
  double router_bias_step = 0;
  /// Head and loss are computed in chunks of this many tokens (0: arch::loss_chunk); absent: logits are whole.
  std::optional<std::int64_t> loss_chunk = {};
  /// Forward and backward of a microbatch are captured once as a CUDA graph and replayed (plan/capture_choice.h).
  bool captured = false;
  std::optional<std::string> not_captured = {};  ///< why not, where the recipe asks for it
};

/// What the switches are checked against.
struct LeverRequest {
  int pp = 1;  ///< pipeline ranks
  DType compute = DType::kFloat32;
  bool cuda = false;
  std::optional<int> layers = {};  ///< of the model; absent where its sizes are unknown
  bool head_rows_normed = false;   ///< arch::ModelSpec
  bool router_biases = true;       ///< routers of the model have correction biases, or its sizes are unknown
};
Levers plan_levers(const config::LoadedRecipe& recipe, const LeverRequest& request, Located& report);
/// Parts of layers that are recomputed. Planned only: a run refuses them.
RecomputeModules recompute_modules(const config::Recipe& recipe, bool training, Located& report);

}  // namespace automodel::plan
