// Shared by most families: the keys of a Llama-like config and the parts of a Llama-like layer.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "arch/config_reader.h"
#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::arch {

/// Defaults for keys missing from the config (those of transformers' config classes).
struct DecoderDefaults {
  int max_positions = 2048;
  std::string_view norm_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;  ///< 0: the family reads its RoPE itself
  // Sizes that some published configs omit; 0: required.
  int vocab = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;                           ///< used only together with `heads`
  int head_dim = 0;                           ///< 0: hidden size / heads
  int rotated_dim = 0;                        ///< dimensions of a head that RoPE may apply to; 0: all
  std::optional<double> partial_rotary = {};  ///< RopeDefaults::partial
  bool tied = false;
  std::optional<int> pad_token = {};
  double initializer_range = 0.02;
  std::string_view layers_key = "num_hidden_layers", heads_key = "num_attention_heads";
  std::string_view kv_heads_key = "num_key_value_heads";
  std::string_view ffn_key = "intermediate_size";
  int ffn_times_hidden = 0;  ///< MLP width in multiples of hidden if the key is absent; 0: required
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
};

/// Reads sizes, norm, activation, RoPE, settings of embedding and head, and dropout rates. Every layer gets full
/// attention and a dense MLP.
void read_decoder(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults);

// What Gemma's generations share.
DecoderDefaults gemma_defaults();
/// Biases of attention, and the scale of the embeddings, which is rounded to the weights' type.
void read_gemma(ConfigReader& config, ModelSpec& spec);
/// Refuses bidirectional attention where the key is a switch (up to Gemma 3).
void refuse_bidirectional(ConfigReader& config);

/// Reads the attention heads. If absent or null, num_key_value_heads defaults to the number of heads, and head_dim to
/// `defaults` or hidden / heads.
void read_heads(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults);
/// Reads keys that all families share: token ids, initializer range, dtype.
void read_training_details(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults = {});
Activation read_activation(ConfigReader& config, std::string_view key, std::string_view otherwise);
/// `llama_4_scaling_beta` of the RoPE settings into ModelSpec::query_growth.
void read_query_growth(ConfigReader& config, ModelSpec& spec);
/// The number at `key`; `absent` if the key is missing, 0 if it is null.
double number_or_off(ConfigReader& config, std::string_view key, double absent);

/// The RoPE of sliding layers that have their own: nested in rope_parameters (transformers 5), else unscaled with base
/// `theta` (in transformers 4, rope_scaling applies only to full-attention layers).
Rope read_sliding_rope(ConfigReader& config, const ModelSpec& spec, double theta);
/// The names at `key`, one per layer; those of layers for multi-token prediction may follow. Empty if the config has
/// none or they are wrong.
std::vector<std::string> names_of_layers(ConfigReader& config, const ModelSpec& spec, std::string_view key,
                                         std::initializer_list<std::string_view> known);
/// Uses `layer_types` if the config has it, else `rule` for each layer.
template <class Rule>
void read_layer_attention(ConfigReader& config, ModelSpec& spec, const Rule& rule);
/// All layers use a sliding window iff sliding_window is given; `absent` is the window if the key is missing (0: none).
void read_uniform_window(ConfigReader& config, ModelSpec& spec, int absent);
/// Every `sliding_window_pattern`-th layer (`absent` if the key is missing) has full attention, the others the window.
void read_pattern_window(ConfigReader& config, ModelSpec& spec, int window, int absent);
/// Qwen's rule: with use_sliding_window, layers from max_window_layers on use the window.
void read_upper_window(ConfigReader& config, ModelSpec& spec);

/// Module names inside a Llama-like layer; an empty name means that norm is absent.
struct LayerNames {
  std::string_view attention = "self_attn";
  std::string_view mixer_norm = "input_layernorm";
  std::string_view mixer_out_norm = "";
  std::string_view feed_norm = "post_attention_layernorm";
  std::string_view feed_out_norm = "";
  std::string_view output = "self_attn.o_proj";
  std::string_view query_norm = "self_attn.q_norm";
  std::string_view key_norm = "self_attn.k_norm";
};
/// Names for x + norm(f(norm(x))), as in Gemma 2.
inline constexpr LayerNames kSandwichNames = {.mixer_out_norm = "post_attention_layernorm",
                                              .feed_norm = "pre_feedforward_layernorm",
                                              .feed_out_norm = "post_feedforward_layernorm"};
/// Names for x + norm(f(x)), as in OLMo 2.
inline constexpr LayerNames kPostNames = {.mixer_norm = "",
                                          .mixer_out_norm = "post_attention_layernorm",
                                          .feed_norm = "",
                                          .feed_out_norm = "post_feedforward_layernorm"};

/// Appends the modules of one block of a layer.
using LayOut = void (*)(const ModelSpec& spec, LayerBuilder& layer);

/// self_attn.{q,k,v}_proj, head norms if the spec has them, the output projection.
void lay_out_attention(const ModelSpec& spec, LayerBuilder& layer, const LayerNames& names = {});
/// The same of a layer with heads of its own (ModelSpec::heads_of), and `gate`, the gate of its output.
void lay_out_gated_attention(const ModelSpec& spec, int number, LayerBuilder& layer,
                             std::string_view gate = "self_attn.g_proj");
/// `module`.{gate,up,down}_proj, or `module`.{up,down}_proj without a gate.
void lay_out_mlp(const ModelSpec& spec, LayerBuilder& layer, std::string_view module);
/// The same below "mlp".
void lay_out_mlp(const ModelSpec& spec, LayerBuilder& layer);
/// mlp.gate_up_proj, mlp.down_proj.
void lay_out_joined_mlp(const ModelSpec& spec, LayerBuilder& layer);
/// Parameters of xIELU: `module`.{alpha_p,alpha_n,beta,eps}.
void lay_out_xielu(std::string_view module, LayerBuilder& layer);
/// A whole layer: norms, attention and feed-forward block in order.
void lay_out_blocks(const ModelSpec& spec, LayerBuilder& layer, const LayerNames& names, LayOut feed,
                    LayOut attention = nullptr);
/// A whole Llama layer, with experts if the spec has them (families/experts.h).
void lay_out_llama(const ModelSpec& spec, int number, LayerBuilder& layer);
/// Embedding, final norm and head under "model." and "lm_head", or nested under "model.language_model.".
void lay_out_llama_ends(const ModelSpec& spec, Layout& layout);
/// The same with other names. `base`: the module that contains the decoder.
struct EndNames {
  std::string_view base = "model";
  std::string_view layers = "layers", embedding = "embed_tokens", norm = "norm";  ///< relative to `base`
  std::string_view head = "lm_head";
  std::string_view rotary = "rotary_emb";
};
void lay_out_ends(const ModelSpec& spec, Layout& layout, const EndNames& names);

/// A config's word for a mixer.
struct MixerWord {
  std::string_view word;
  Mixer mixer;
};
/// Reads a list of such words, one per layer, into ModelSpec::mixers; returns false if the config lacks the key.
bool read_mixers(ConfigReader& config, ModelSpec& spec, std::string_view key, std::span<const MixerWord> words);

/// Reads a `layer_types` list into `spec`; returns false if the config has none.
bool read_layer_types(ConfigReader& config, ModelSpec& spec);

template <class Rule>
void read_layer_attention(ConfigReader& config, ModelSpec& spec, const Rule& rule) {
  if (read_layer_types(config, spec)) return;
  for (int i = 0; i < spec.layers; ++i)
    spec.attention[static_cast<std::size_t>(i)] = rule(i) ? LayerAttention::kSliding : LayerAttention::kFull;
}

}  // namespace automodel::arch
