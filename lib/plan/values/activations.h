// What is kept of the activations between forward and backward passes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace automodel::plan {

/// What a layer keeps between its forward and backward pass.
enum class Recompute : std::uint8_t {
  kNone,       ///< everything
  kFull,       ///< only its input; the whole layer is recomputed (Chen et al. 2016)
  kSelective,  ///< what attention's backward needs; norm and MLP are recomputed
};

std::string_view name_of(Recompute recompute);

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

/// Activations of the first `layers` layers are kept in host memory until the backward pass (Megatron Core's
/// cpu_offloading).
struct ActivationOffloading {
  int layers = 0;
  bool double_buffering = false;     ///< reload into two persistent buffers
  bool retain_host_buffers = false;  ///< keep page-locked buffers between microbatches and steps
};

struct ActivationPlan {
  Recompute recompute = Recompute::kNone;
  /// This many of the microbatches in flight on a rank keep all activations: forward number k recomputes if k mod (peak
  /// number in flight) is at least this. Empty: every microbatch recomputes. Megatron Core's
  /// num_microbatches_with_partial_activation_checkpoints.
  std::optional<int> kept_microbatches = {};
  std::optional<ActivationOffloading> offloading = {};
};

}  // namespace automodel::plan
