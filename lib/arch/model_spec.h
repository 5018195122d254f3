// A decoder-only language model as plain numbers and switches. Families differ in their values, not in type.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/rope.h"
#include "arch/vision.h"
#include "base/dtype.h"

namespace automodel::arch {

enum class NormKind : std::uint8_t { kRmsNorm, kLayerNorm };
/// How a norm applies its weight: after the cast back to the input dtype, in fp32 before the cast, or as 1 + w in fp32
/// before the cast (Gemma, Nemotron).
enum class NormScale : std::uint8_t { kAfterCast, kInFloat, kOnePlusInFloat };
/// kGelu uses the error function, kGeluTanh its tanh approximation (gelu_new, gelu_pytorch_tanh). kRelu2 is squared
/// ReLU. kXielu has two trained scalars per layer (Huang et al. 2024).
enum class Activation : std::uint8_t { kSilu, kGelu, kGeluTanh, kRelu, kRelu2, kXielu };
enum class LayerAttention : std::uint8_t { kFull, kSliding };
/// What attention's output is multiplied by, of Part::kAttentionGate: a number per head (Step 3.5 takes its sigmoid,
/// Laguna its softplus) or per channel.
enum class OutputGate : std::uint8_t { kNone, kHeadSigmoid, kHeadSoftplus, kChannelSigmoid, kChannelSoftplus };
constexpr bool is_sigmoid(OutputGate gate) {
  return gate == OutputGate::kHeadSigmoid || gate == OutputGate::kChannelSigmoid;
}
constexpr bool is_per_channel(OutputGate gate) {
  return gate == OutputGate::kChannelSigmoid || gate == OutputGate::kChannelSoftplus;
}

/// The token mixer of a layer.
enum class Mixer : std::uint8_t {
  kAttention,
  kGatedDelta,         ///< gated delta rule with one decay per head (Qwen3-Next)
  kChannelDelta,       ///< the same with one decay per channel (Kimi Delta Attention)
  kMamba,              ///< Mamba-2
  kMambaAndAttention,  ///< both on the same input, outputs added (Falcon-H1)
  kLightning,          ///< linear attention with a fixed decay per head (MiniMax-01)
  kShortConv,          ///< a gated convolution over a few tokens (LFM2)
  kNone,               ///< the layer is only a feed-forward block
};
inline constexpr std::size_t kMixerCount = 8;
/// Whether the mixer carries a state from token to token.
constexpr bool is_recurrent(Mixer mixer) {
  return mixer != Mixer::kAttention && mixer != Mixer::kNone;
}

/// Recurrent mixers: each head has a state matrix [key_dim, value_dim] that every token updates and reads. A short
/// convolution uses only `taps` and the biases.
struct Recurrence {
  int heads = 0;
  int groups = 0;     ///< query/key heads (Mamba-2's C and B); each serves heads / groups adjacent heads
  int key_dim = 0;    ///< width of a query and a key head
  int value_dim = 0;  ///< width of a value head
  int taps = 0;       ///< kernel size of the convolution in front of the state
  bool conv_bias = false;
  bool in_bias = false;
  bool out_bias = false;
  /// Channel order of the convolution: values, keys, queries (Mamba-2); else queries, keys, values.
  bool values_first = false;
  bool norm = true;         ///< normalise the state's output
  bool norm_first = false;  ///< gate * norm(output); else norm(gate * output)
  double norm_eps = 1e-6;
  double least_step = 0;                   ///< lower limit of Mamba-2's time step
  double most_step = 0;                    ///< upper limit; 0: none
  std::optional<double> decay_bound = {};  ///< log decays are in [this, 0]; unset: no bound
  /// Row counts of the sections of the input projection, each covering all heads; empty: rows are grouped by head.
  std::vector<std::int64_t> sections = {};
  std::int64_t key_width() const { return std::int64_t{groups} * key_dim; }
  std::int64_t value_width() const { return std::int64_t{heads} * value_dim; }
  bool operator==(const Recurrence&) const = default;
};

/// Scaling factors in the branches of a layer (Falcon-H1).
struct BranchScales {
  double attention_in = 1, attention_out = 1;
  double state_in = 1, state_out = 1;
  std::array<double, 5> state = {1, 1, 1, 1, 1};  ///< for Mamba-2's gate, values, B, C and time steps
  double gate = 1, mlp_out = 1;
  bool operator==(const BranchScales&) const = default;
};

/// Normalisation of queries and keys.
struct HeadNorm {
  enum class Span : std::uint8_t {
    kHead,      ///< each head separately, one weight shared by all heads
    kEachHead,  ///< each head separately, with its own weight
    kAllHeads,  ///< all heads together
  };
  NormKind kind = NormKind::kRmsNorm;
  Span span = Span::kHead;
  bool weight = true;
  bool bias = false;
  bool after_rope = false;
  bool operator==(const HeadNorm&) const = default;
};

/// Row order of a fused query-key-value projection.
enum class QkvOrder : std::uint8_t {
  kBlocks,  ///< all queries, all keys, all values
  kGroups,  ///< per key-value head: its queries, its key, its value
};

/// How a token's experts are selected and their outputs weighted.
enum class RouterScore : std::uint8_t {
  kSoftmax,          ///< over all experts
  kSoftmaxOfChosen,  ///< selection by logits, then softmax over the selected ones
  kSigmoid,
  kSqrtSoftplus,  ///< DeepSeek V4
  kSparseMixer,   ///< two experts, selected one after the other (Phi-3.5-MoE; Liu et al. 2023)
};
/// How a group of experts is scored for selection.
enum class GroupScore : std::uint8_t {
  kBestTwo,  ///< sum of its two best scores
  kBest,
};

/// Multi-head latent attention (DeepSeek): keys and values come from one low-rank vector per token.
struct LatentAttention {
  int q_rank = 0;  ///< 0: queries are projected directly
  int kv_rank = 0;
  int nope_dim = 0;  ///< part of a query/key head without RoPE
  int rope_dim = 0;  ///< part of a head with RoPE; for keys, shared by all heads
  int v_dim = 0;
  bool operator==(const LatentAttention&) const = default;
};

/// The indexer of sparse attention: scores every earlier token with small queries and keys of its own, and attention
/// sees only the `top_k` best. The indexer receives no gradient. DeepSeek's heads choose together; MiniMax-M3's each
/// choose `top_k` / `block` blocks of tokens, for an equal share of attention's heads.
struct TokenIndex {
  int top_k = 0;
  int block = 0;  ///< tokens that are chosen together, by their best score; 0: each by itself
  int local = 0;  ///< of the chosen blocks, the query's own and those before it that always are
  int heads = 0;
  int dim = 0;               ///< width of its queries and keys; RoPE applies to the first rope_dim
  bool interleaved = false;  ///< RoPE rotates adjacent pairs
  /// Per layer: whether it has an indexer; else it reuses the previous layer's selection, or with blocks sees all
  /// tokens.
  std::vector<bool> layers = {};
  bool chooses(int layer) const { return layers[static_cast<std::size_t>(layer)]; }
  bool reuses(int layer) const { return block == 0 && !chooses(layer); }
  /// Whether the layer attends to a selection of `length` tokens. Sequences of at most top_k tokens are seen whole.
  bool limits(int layer, std::int64_t length) const { return length > top_k && (chooses(layer) || reuses(layer)); }
  /// The layer whose selection this layer uses.
  int chooser(int layer) const {
    while (layer > 0 && !chooses(layer)) --layer;
    return layer;
  }
  bool operator==(const TokenIndex&) const = default;
};

/// Attention of DeepSeek V4: one head that is key and value at once, low-rank queries and outputs. In some layers
/// windows of tokens are also compressed into entries, keys that every later query sees beside its own window.
struct CompressedAttention {
  int q_rank = 0;
  int output_groups = 0;  ///< groups of heads, each with a matrix of its own from its outputs to `output_rank`
  int output_rank = 0;
  std::vector<int> rates = {};  ///< per layer: tokens that become an entry; 0: none
  /// Layers with this rate mix the entries of a window and of the one before it, and an index chooses the `top_k`
  /// entries of each query (compressed sparse attention). 0: no layer does.
  int sparse_rate = 0;
  int index_heads = 0, index_dim = 0, top_k = 0;
  int rate(int layer) const { return rates[static_cast<std::size_t>(layer)]; }
  bool is_sparse(int layer) const { return rate(layer) > 0 && rate(layer) == sparse_rate; }
  bool operator==(const CompressedAttention&) const = default;
};

/// A residual stream of several parallel ones (manifold-constrained hyper-connections, Xie et al. 2026): a block reads
/// a weighted sum of them, and its output is added to a mixture of them. Weights follow from the streams themselves.
struct HyperConnections {
  int streams = 0;
  int iterations = 0;  ///< of Sinkhorn and Knopp's normalisation of the mixture's weights
  double eps = 1e-6;   ///< added to weights and to the sums that they are divided by
  bool operator==(const HyperConnections&) const = default;
};

/// Mixture of experts in the layers that `ModelSpec::moe_layers` marks.
struct MixtureOfExperts {
  int experts = 0;
  int top_k = 0;
  int ffn = 0;         ///< width of one expert
  int shared_ffn = 0;  ///< width of the MLP applied to every token (all shared experts combined); 0: none
  int latent = 0;      ///< width that tokens are projected to for the routed experts; 0: the residual stream's
  bool shared_bias = false;
  bool shared_switch = false;  ///< the shared experts' output is gated by a sigmoid with one scalar per token
  RouterScore score = RouterScore::kSoftmax;
  bool float_router = false;     ///< the router's matmul itself runs in float32 or better
  bool correction_bias = false;  ///< a checkpoint buffer added to the scores for selection only
  int groups = 1;                ///< n_group
  int top_groups = 1;            ///< topk_group: only experts of this many best groups can be selected
  GroupScore group_score = GroupScore::kBestTwo;
  bool normalize_top_k = true;   ///< the weights of the selected experts are normalised to sum to 1
  double normalize_added = 0.0;  ///< epsilon added to the sum they are divided by
  double normalize_least = 0.0;  ///< lower bound of that divisor
  double scaling = 1.0;          ///< routed_scaling_factor
  double logit_softcap = 0.0;    ///< c: logits become c tanh(x / c); 0: none
  double jitter = 0.0;           ///< kSparseMixer: logits farther than 2 x this from the best (relatively) are masked
  bool bias = false;             ///< router and experts have biases
  bool joined = false;           ///< saved folders hold one tensor for the same matrices of all experts of a layer
  /// Experts beside an MLP, the shared one: each with norms of its own; the router's input is normalised and scaled,
  /// its weights are scaled by expert (Gemma 4).
  bool beside = false;
  double aux_loss_coefficient = 0.0;
  bool output_router_logits = false;  ///< transformers adds the auxiliary loss only if set
  bool paired_gates = false;          ///< gate and up are interleaved in the output of their fused matmul (gpt-oss)
  bool shifted_gates = false;         ///< gpt-oss's formula with all gates before all ups, also of shared experts and
                                      ///< dense MLPs (MiniMax-M3)
  double swiglu_alpha = 1.0;          ///< gpt-oss: (up + 1) gate sigmoid(alpha gate)
  double swiglu_limit = 0.0;          ///< limit of gate, above, and up, on both sides, before the activation, also of
                                      ///< shared experts; 0: none
  /// Layers whose experts a stored table chooses by token, the scores only their weights (DeepSeek V4); empty: none.
  std::vector<bool> table_layers = {};
  bool operator==(const MixtureOfExperts&) const = default;
};

/// Heads of full-attention layers that differ from those of layers with a window (Gemma 4, MiMo-V2, Laguna, Step 3.5).
struct FullHeads {
  int heads = 0;  ///< of queries; 0: as many as in the others
  int kv_heads = 0;
  int head_dim = 0;
  bool values_are_keys = false;  ///< there is no value projection
  bool operator==(const FullHeads&) const = default;
};

struct ModelSpec {
  std::string model_type = {};    ///< the family, such as "llama"; of the text part if the config nests one
  std::string architecture = {};  ///< "LlamaForCausalLM"
  std::string nested_in = {};     ///< model_type of the enclosing multimodal model, else empty
  /// Why this model can be planned but not trained; empty if it can be trained.
  std::string plan_only = {};
  std::optional<VisionSpec> vision = {};  ///< of a model that is trained with pictures

  // Sizes, all at least 1.
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;  ///< width of a dense MLP; the widest if layers differ
  int vocab = 0;
  int classes = 0;  ///< of a sequence classifier, whose head scores them instead of tokens; 0: a language model
  int max_positions = 0;

  // Norms.
  NormKind norm = NormKind::kRmsNorm;
  NormScale norm_scale = NormScale::kAfterCast;
  bool norm_weight = true;  ///< false: normalisation only (OLMo)
  bool norm_bias = false;
  double norm_eps = 1e-6;
  double branch_norm_eps = 0.0;  ///< of the norms of block outputs, if they have their own; 0: norm_eps
  bool plain_end_norm = false;   ///< the final norm is scaled by its weight where others are by 1 + weight
  std::optional<HeadNorm> head_norm = {};

  // The residual stream: x + f(norm(x)), x + norm(f(x)), or x + norm(f(norm(x))).
  bool input_norms = true;            ///< norms before attention and before the MLP
  bool branch_norms = false;          ///< norms of their outputs, before these are added
  bool separate_input_norms = false;  ///< with parallel blocks: one for each block
  bool parallel_blocks = false;       ///< attention and MLP run on the same input; both outputs are added together
  double residual_scale = 1.0;        ///< factor applied to a block's output (Granite)
  std::optional<HyperConnections> hyper = {};
  BranchScales scales = {};

  // MLP.
  Activation activation = Activation::kSilu;
  std::vector<int> ffns = {};  ///< width of the dense MLP per layer; empty: `ffn` everywhere
  bool gated_mlp = true;
  bool mlp_bias = false;
  /// Per layer: limit of the activated gate, above, and of up, on both sides, in experts, and in other MLPs, shared
  /// experts included (Step 3.5); 0, or empty: none.
  std::vector<double> expert_limits = {}, mlp_limits = {};

  // Attention.
  QkvOrder qkv_order = QkvOrder::kBlocks;  ///< of a fused projection
  bool qkv_bias = false;
  bool output_bias = false;
  bool attention_sinks = false;    ///< one extra logit per head that only enters the softmax
  double attention_scale = 0.0;    ///< factor of the scores; 0: head_dim^-1/2
  double attention_softcap = 0.0;  ///< c: scores become c tanh(x / c); 0: none
  double qkv_clip = 0.0;           ///< queries, keys and values are clamped to +- this; 0: none
  double query_growth = 0.0;    ///< queries are scaled by 1 + this x ln(1 + floor(position / original context)); 0: off
  bool scale_by_layer = false;  ///< divide scores by layer index + 1 (a GPT-2 option)
  int sliding_window = 0;       ///< window of kSliding layers in tokens, the current one included; 0: none
  std::vector<LayerAttention> attention = {};  ///< one per layer
  std::optional<FullHeads> full_heads = {};    ///< of full-attention layers, if they have their own
  bool value_norm = false;                     ///< each value is normalised, without a weight
  int value_dim = 0;                           ///< width of a value head; 0: that of keys. Not with full_heads of
                                               ///< another width
  double value_scale = 1.0;                    ///< factor of the values (MiMo-V2)
  /// The last so many layers have no keys and values of their own, but those of the last layer before them that attends
  /// as they do.
  int layers_without_keys = 0;
  std::optional<LatentAttention> latent = {};
  std::optional<TokenIndex> index = {};  ///< with latent attention or, if it chooses blocks, without
  std::optional<CompressedAttention> compressed = {};
  /// Attention outputs are multiplied by the sigmoid of a gate. The query projection is then twice as wide and holds,
  /// per head, its query followed by its gate.
  bool attention_gate = false;
  OutputGate output_gate = OutputGate::kNone;  ///< without latent attention

  // Layers with mixers other than attention, or without the usual two blocks.
  std::vector<Mixer> mixers = {};             ///< one per layer; empty: all attention
  std::vector<bool> feeds = {};               ///< per layer: whether it has a feed-forward block; empty: all do
  std::optional<Recurrence> recurrence = {};  ///< for all layers with a recurrent mixer

  // Positions.
  /// Tokens beyond which a sequence has no positions; null if they are computed rather than learned.
  std::optional<std::int64_t> position_limit() const {
    return learned_positions ? std::optional<std::int64_t>(max_positions) : std::nullopt;
  }
  bool learned_positions = false;         ///< a table of max_positions rows (GPT-2)
  int first_position_row = 0;             ///< row of that table for position 0 (OPT)
  Rope rope = {};                         ///< of every layer, or only of the full-attention or compressed ones
  std::optional<Rope> sliding_rope = {};  ///< of the other layers, if they have their own
  std::vector<bool> rope_layers = {};     ///< per layer: whether it applies RoPE; empty: all do

  // Inputs of the layers (Gemma 4): each takes a part of a second embedding and of a projection of the first.
  int layer_input = 0;       ///< width of a layer's part; 0: none
  int layer_input_rows = 0;  ///< of the second table
  bool layer_scale = false;  ///< a layer's output is multiplied by a stored number

  // Ends.
  bool tied_embeddings = false;
  double embedding_scale = 1.0;        ///< factor of the token embeddings
  bool round_embedding_scale = false;  ///< rounded to the weights' dtype (Gemma: sqrt(hidden))
  bool embedding_norm = false;         ///< token embeddings are normalised, without a weight (Muse-Glimmer)
  bool head_bias = false;
  bool head_rows_normed = false;  ///< the head's rows are normalised to length 1 when used (Baichuan 2)
  double logit_scale = 1.0;       ///< factor applied to the logits
  double logit_softcap = 0.0;     ///< 0: none

  // Experts.
  std::optional<MixtureOfExperts> moe = {};
  std::vector<bool> moe_layers = {};  ///< one per layer
  int mtp_layers = 0;  ///< multi-token-prediction layers that a checkpoint may hold beyond `layers`; not loaded

  // Training details.
  double attention_dropout = 0.0;
  double embedding_dropout = 0.0;
  double residual_dropout = 0.0;
  double initializer_range = 0.02;
  bool depth_scaled_start = false;    ///< output projections start smaller by sqrt(2 layers) (GPT-2)
  std::optional<int> pad_token = {};  ///< its embedding row receives no gradient
  std::optional<int> bos_token = {};
  std::vector<int> eos_tokens = {};
  std::optional<DType> dtype = {};  ///< dtype of the stored weights, if the config says

  /// Rows of the head.
  int outputs() const { return classes > 0 ? classes : vocab; }
  bool has_full_heads(int layer) const { return full_heads && !slides(layer); }
  int heads_of(int layer) const { return has_full_heads(layer) && full_heads->heads > 0 ? full_heads->heads : heads; }
  int head_dim_of(int layer) const { return has_full_heads(layer) ? full_heads->head_dim : head_dim; }
  int kv_heads_of(int layer) const { return has_full_heads(layer) ? full_heads->kv_heads : kv_heads; }
  bool has_keys(int layer) const { return layer < layers - layers_without_keys; }
  /// The layer whose keys and values this one uses.
  int keys_of(int layer) const {
    int out = layer;
    if (!has_keys(layer)) out = layers - layers_without_keys - 1;
    while (out > 0 && slides(out) != slides(layer)) --out;
    return out;
  }
  /// Whether a later layer uses its keys and values.
  bool lends_keys(int layer) const {
    for (int later = layers - layers_without_keys; later < layers; ++later)
      if (keys_of(later) == layer) return true;
    return false;
  }
  int query_width(int layer) const {
    return latent ? heads * (latent->nope_dim + latent->rope_dim) : heads_of(layer) * head_dim_of(layer);
  }
  int value_dim_of(int layer) const { return value_dim > 0 ? value_dim : head_dim_of(layer); }
  int value_width(int layer) const { return latent ? heads * latent->v_dim : heads_of(layer) * value_dim_of(layer); }
  int compression(int layer) const { return compressed ? compressed->rate(layer) : 0; }
  /// Tensors of the residual stream's width that stages pass on beside it.
  int carried_streams() const { return hyper ? hyper->streams - 1 : 0; }
  bool has_expert_table(int layer) const {
    return moe && !moe->table_layers.empty() && moe->table_layers[static_cast<std::size_t>(layer)];
  }
  /// Decoder layers that add an output of the vision tower: the first so many.
  int deep_layers() const { return vision ? static_cast<int>(vision->deep_layers.size()) : 0; }
  /// Number of sums that the routers of a stage accumulate for the auxiliary loss (model/router_statistics.h); 0
  /// without one.
  int router_sums() const {
    return moe && moe->output_router_logits && moe->aux_loss_coefficient != 0 ? 2 * moe->experts + 1 : 0;
  }
  Mixer mixer(int layer) const { return mixers.empty() ? Mixer::kAttention : mixers[static_cast<std::size_t>(layer)]; }
  bool attends(int layer) const {
    return mixer(layer) == Mixer::kAttention || mixer(layer) == Mixer::kMambaAndAttention;
  }
  bool recurs(int layer) const { return is_recurrent(mixer(layer)); }
  bool has_feed(int layer) const { return feeds.empty() || feeds[static_cast<std::size_t>(layer)]; }
  int ffn_of(int layer) const { return ffns.empty() ? ffn : ffns[static_cast<std::size_t>(layer)]; }
  double expert_limit(int layer) const {
    return expert_limits.empty() ? 0 : expert_limits[static_cast<std::size_t>(layer)];
  }
  double mlp_limit(int layer) const { return mlp_limits.empty() ? 0 : mlp_limits[static_cast<std::size_t>(layer)]; }
  bool slides(int layer) const { return attention[static_cast<std::size_t>(layer)] == LayerAttention::kSliding; }
  bool has_rope(int layer) const { return rope_layers.empty() || rope_layers[static_cast<std::size_t>(layer)]; }
  /// Width of the experts' inputs and outputs.
  int expert_hidden() const { return moe->latent > 0 ? moe->latent : hidden; }
  bool is_moe(int layer) const { return moe.has_value() && moe_layers[static_cast<std::size_t>(layer)]; }
  bool operator==(const ModelSpec&) const = default;
};

/// The language model as transformers' ...ForSequenceClassification: its head is `score`, without a bias, and what the
/// family does to logits and the experts' auxiliary loss do not apply.
void make_classifier(ModelSpec& spec, int classes);

/// transformers' names of the values, such as "full_attention".
std::string_view name_of(LayerAttention attention);
std::string_view name_of(RopeKind kind);
/// Display name: "attention", "Mamba-2", ...
std::string_view name_of(Mixer mixer);

}  // namespace automodel::arch
