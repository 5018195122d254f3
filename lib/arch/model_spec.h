// One decoder-only language model as plain numbers and switches. Families differ in the values, not in the type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/rope.h"
#include "base/dtype.h"

namespace automodel::arch {

enum class NormKind : std::uint8_t { kRmsNorm, kLayerNorm };
/// Where the weight of an RMSNorm is applied: after the cast back to the input type, in fp32 before it, or as 1 + w in
/// fp32 before it (Gemma).
enum class NormScale : std::uint8_t { kAfterCast, kInFloat, kOnePlusInFloat };
/// kGelu is the one with the error function; kGeluTanh its tanh approximation (gelu_new, gelu_pytorch_tanh).
enum class Activation : std::uint8_t { kSilu, kGelu, kGeluTanh, kRelu };
enum class LayerAttention : std::uint8_t { kFull, kSliding };
enum class RouterKind : std::uint8_t {
  kSoftmaxTopK,    ///< softmax over all experts, then the top k
  kTopKSoftmax,    ///< top k of the logits, then softmax over those (gpt-oss)
  kSigmoidGroups,  ///< sigmoid scores with a correction bias, best groups first (DeepSeek-V3)
};

/// Multi-head latent attention (DeepSeek): keys and values come from one low-rank vector per token.
struct LatentAttention {
  int q_rank = 0;  ///< 0: queries are projected directly
  int kv_rank = 0;
  int nope_dim = 0;  ///< part of a query/key head without rotation
  int rope_dim = 0;  ///< rotated part of a head, shared by all key heads
  int v_dim = 0;
  bool interleaved_rope = true;  ///< rotary pairs are (0,1), (2,3), ... on disk
  bool operator==(const LatentAttention&) const = default;
};

/// Mixture of experts in the layers that `ModelSpec::moe_layers` marks.
struct MixtureOfExperts {
  int experts = 0;
  int top_k = 0;
  int ffn = 0;             ///< width of one expert
  int shared_experts = 0;  ///< run for every token, as one MLP of width shared_experts x ffn
  RouterKind router = RouterKind::kSoftmaxTopK;
  bool normalize_top_k = true;   ///< weights of the chosen experts sum to 1
  double scaling = 1.0;          ///< routed_scaling_factor
  int groups = 1;                ///< n_group
  int top_groups = 1;            ///< topk_group
  bool correction_bias = false;  ///< e_score_correction_bias, a buffer of the checkpoint
  bool bias = false;             ///< router and experts have biases
  double aux_loss_coefficient = 0.0;
  bool output_router_logits = false;  ///< transformers adds the auxiliary loss only with this
  double swiglu_alpha = 1.0;          ///< gpt-oss: (up + 1) gate sigmoid(alpha gate)
  double swiglu_limit = 0.0;          ///< gpt-oss: clamp of gate and up; 0: none
  bool operator==(const MixtureOfExperts&) const = default;
};

struct ModelSpec {
  std::string model_type = {};    ///< the family, for example "llama"; of the text part where a config nests one
  std::string architecture = {};  ///< "LlamaForCausalLM"
  std::string nested_in = {};     ///< model_type of the multimodal model around the text part, else empty
  /// Why this model can be planned but not trained; empty where it can be trained.
  std::string plan_only = {};

  // Sizes, all at least 1.
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;  ///< width of a dense MLP
  int vocab = 0;
  int max_positions = 0;

  // Norms.
  NormKind norm = NormKind::kRmsNorm;
  NormScale norm_scale = NormScale::kAfterCast;
  double norm_eps = 1e-6;
  bool qk_norm = false;         ///< RMSNorm of each query and key head before the rotation
  bool sandwich_norms = false;  ///< also after attention and after the MLP, inside the residual branch (Gemma)

  // MLP.
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;
  bool mlp_bias = false;

  // Attention.
  bool qkv_bias = false;
  bool output_bias = false;
  bool attention_sinks = false;                ///< one logit per head that takes part in the softmax only
  double attention_scale = 0.0;                ///< factor of query-key products; 0: head_dim^-1/2
  double attention_softcap = 0.0;              ///< c tanh(x / c) of the scores; 0: none
  bool scale_by_layer = false;                 ///< divides scores by layer number + 1 (an option of GPT-2)
  int sliding_window = 0;                      ///< tokens seen, itself included, in layers of kind kSliding; 0: none
  std::vector<LayerAttention> attention = {};  ///< one a layer
  std::optional<LatentAttention> latent = {};

  // Positions.
  bool learned_positions = false;         ///< a table of max_positions rows (GPT-2)
  Rope rope = {};                         ///< of every layer, or of the full-attention ones
  std::optional<Rope> sliding_rope = {};  ///< of the sliding layers where they have their own

  // Ends.
  bool tied_embeddings = false;
  double embedding_scale = 1.0;  ///< factor of the token embeddings (Gemma: sqrt(hidden), rounded to the weight type)
  double logit_softcap = 0.0;    ///< 0: none

  // Experts.
  std::optional<MixtureOfExperts> moe = {};
  std::vector<bool> moe_layers = {};  ///< one a layer
  int mtp_layers = 0;  ///< multi-token-prediction layers that a checkpoint may hold beyond `layers`; not loaded

  // Training details.
  double attention_dropout = 0.0;
  double embedding_dropout = 0.0;
  double residual_dropout = 0.0;
  double initializer_range = 0.02;
  std::optional<int> pad_token = {};  ///< its embedding row receives no gradient
  std::optional<int> bos_token = {};
  std::vector<int> eos_tokens = {};
  std::optional<DType> dtype = {};  ///< of the stored weights, where the config says

  int query_width() const { return latent ? heads * (latent->nope_dim + latent->rope_dim) : heads * head_dim; }
  int value_width() const { return latent ? heads * latent->v_dim : heads * head_dim; }
  /// Numbers that the routers of a stage add up for the auxiliary loss (model/router_statistics.h); 0: there is none.
  int router_sums() const {
    return moe && moe->output_router_logits && moe->aux_loss_coefficient != 0 ? 2 * moe->experts + 1 : 0;
  }
  bool is_moe(int layer) const { return moe.has_value() && moe_layers[static_cast<std::size_t>(layer)]; }
  bool operator==(const ModelSpec&) const = default;
};

/// "full_attention" and so on: transformers' names of the values.
std::string_view name_of(LayerAttention attention);
std::string_view name_of(RopeKind kind);

}  // namespace automodel::arch
