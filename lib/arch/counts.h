// Parameter counts by role, and floating-point operations per token.
#pragma once

#include <array>
#include <cstdint>

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "base/dtype.h"

namespace automodel::arch {

/// Elements by role. Includes buffers stored in checkpoints, as safetensors totals do; a tied head counts as zero.
struct ParameterCounts {
  std::array<std::int64_t, kRoleCount> by_role = {};
  std::int64_t matrix = 0;  ///< subset of all: elements of matrices that every token is multiplied by, without experts
  std::int64_t expert_matrix = 0;  ///< subset of all: elements of the matrices of all experts
  std::int64_t buffers = 0;        ///< subset of all: not trained

  std::int64_t of(Role role) const { return by_role[static_cast<std::size_t>(role)]; }
  std::int64_t total() const;
  std::int64_t trainable() const { return total() - buffers; }
  std::int64_t bytes(DType dtype) const { return total() * size_of(dtype); }
  ParameterCounts& operator+=(const ParameterCounts& other);
  bool operator==(const ParameterCounts&) const = default;
};

/// The part of a model to count: a pipeline stage, or the whole model.
struct Portion {
  bool embeddings = false;
  int first_layer = 0;
  int last_layer = 0;  ///< one past the last
  bool norm = false;
  bool head = false;
};
Portion whole_model(const Layout& layout);

ParameterCounts count_layer(const Layout& layout, int layer);
/// Counts for a portion. A tied head counts if the portion does not include the embeddings, since the stage then holds
/// a second copy of the weight.
ParameterCounts count_parameters(const Layout& layout, const Portion& portion);
ParameterCounts count_parameters(const ModelSpec& spec);
/// The parameters in `counts` that one token uses: everything except experts not selected for it.
std::int64_t active_parameters(const ModelSpec& spec, const ParameterCounts& counts);

/// Floating-point operations of the forward pass for one token of a sequence of `sequence` tokens:
///   2 x (elements of the matrices it is multiplied by; of the experts' only top_k / experts)
///   + 2 x (query width + value width) x (keys it sees on average) for each attention layer: scores and weighted
///   values,
///   + 4 x heads x key width x value width for each recurrent layer, whose state is written and read once, or 6 x with
///   a delta rule, which reads it twice; plus 2 x taps x channels for its convolution.
/// The keys seen are sequence / 2 with `causal`, w - w^2 / (2 sequence) in a layer with a window of w < sequence, and
/// `sequence` without `causal` (for kernels that compute masked scores too). Embedding lookup, norms, softmax and
/// activations are not counted. The backward pass costs twice as much as the forward pass. With `causal` and no window,
/// three times this is Megatron Core's model FLOPs per token.
double layer_flops_per_token(const ModelSpec& spec, const Layout& layout, int layer, std::int64_t sequence,
                             bool causal = true);
/// The first term: matmuls with weights.
double layer_product_flops_per_token(const ModelSpec& spec, const Layout& layout, int layer);
/// The remaining terms: attention scores and weighted values, recurrent states.
double layer_score_flops_per_token(const ModelSpec& spec, int layer, std::int64_t sequence, bool causal = true);
/// The state's part of the above; 0 for a layer without one.
double state_flops_per_token(const ModelSpec& spec, int layer);
double head_flops_per_token(const ModelSpec& spec);
/// Elements of the projection that combines hidden states and embeddings in front of a multi-token-prediction layer.
double mtp_join_elements(const ModelSpec& spec);

}  // namespace automodel::arch
