// How a microbatch is computed, beyond the order of the schedule: the decisions of `plan --json`'s `execution`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "arch/adapters.h"
#include "base/dtype.h"
#include "plan/values/activations.h"
#include "plan/values/float8.h"

namespace automodel::plan {

/// Quantised frozen weights under adapters.
struct QuantizationPlan {
  arch::QuantizedBase base = {};
  DType compute = DType::kBFloat16;  ///< dtype of matmuls with them
};

struct PrecisionPlan {
  /// Matmuls run in this dtype; the residual stream keeps its own.
  std::optional<DType> autocast = {};
  std::optional<Float8Plan> float8 = {};
  std::optional<QuantizationPlan> quantization = {};
  /// Low-precision matmuls accumulate weight gradients directly in the gradient's dtype. Megatron Core's
  /// gradient_accumulation_fusion.
  bool fused_accumulation = false;
  bool loss_scaler = false;    ///< dynamic loss scale of float16 training
  bool deterministic = false;  ///< on a GPU, use only kernels with a deterministic summation order
};

/// What a student learns from: (1 - ratio) cross-entropy + ratio T^2 KL(teacher || student) at temperature T. Source:
/// NeMo AutoModel, KDLoss; Hinton et al. 2015.
struct DistillationPlan {
  double ratio = 0.5;
  double temperature = 1;
};

struct LossPlan {
  std::int64_t ignore_label = -100;
  double logit_softcap = 0;  ///< of the logits before the loss, after the model's own; 0: none
  /// Head and loss are computed in chunks of this many tokens, which limits how many logits exist at once (0: rows()
  /// chooses); empty: not chunked.
  std::optional<std::int64_t> loss_chunk = {};
  bool in_place = false;  ///< for another stack's estimate: its kernel writes the gradient over the logits

  std::optional<DistillationPlan> distillation = {};  ///< empty: there is no teacher

  bool chunked() const { return loss_chunk.has_value(); }
  /// Tokens per chunk: all if not chunked; as set; or enough that one chunk's logits are about as large as the hidden
  /// states of all `tokens`: ceil(tokens * hidden / vocabulary), but at least 256. With fewer, matmuls become bound by
  /// reading the weight and its gradient, which every chunk reads in full.
  std::int64_t rows(std::int64_t tokens, std::int64_t hidden, std::int64_t vocabulary) const {
    if (!chunked()) return tokens;
    const auto columns = std::max<std::int64_t>(1, vocabulary);
    const auto even = std::max<std::int64_t>(256, (tokens * hidden + columns - 1) / columns);
    return std::max<std::int64_t>(1, std::min(tokens, *loss_chunk > 0 ? *loss_chunk : even));
  }
};

struct ExpertPlan {
  /// Tokens are dispatched in two halves, one being computed while the other is in transit; the shared experts run
  /// meanwhile. Megatron Core's overlap_moe_expert_parallel_comm.
  bool overlap_experts = false;
  /// Weight gradients are computed while input gradients are sent back. Megatron Core's
  /// overlap_dispatch_backward_with_experts_wgrad.
  bool late_expert_gradients = false;
  /// Step size of the router correction biases, moved against expert load; 0 disables the update.
  double router_bias_step = 0;
};

struct GradientPlan {
  /// The head's weight gradient is deferred to the stage's last backward pass, for this many microbatches (0: all).
  std::optional<int> deferred_head = {};
  /// A backward pass sends its input gradient before it computes weight gradients.
  bool delay_weight_gradients = false;
  /// NeMo AutoModel's scale_grads_in_schedule: the mean over microbatches of each one's mean loss.
  bool scale_in_schedule = false;
  bool check_gradients = true;          ///< a non-finite gradient stops the run before the optimizer step
  std::optional<double> max_norm = {};  ///< gradient norm clipping; empty: none
};

struct CapturePlan {
  /// Forward and backward of a microbatch are captured once as a CUDA graph and replayed (plan/capture_choice.h).
  bool captured = false;
  std::optional<std::string> not_captured = {};  ///< why not, where the recipe asks for it
};

struct Execution {
  ActivationPlan activations = {};
  PrecisionPlan precision = {};
  LossPlan loss = {};
  ExpertPlan experts = {};
  GradientPlan gradients = {};
  CapturePlan capture = {};
  double embedding_noise = 0;  ///< NEFTune's alpha
};

}  // namespace automodel::plan
