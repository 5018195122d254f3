// What most families share: the keys of a Llama-like config and the parts of a Llama-like layer.
#pragma once

#include <string_view>

#include "arch/config_reader.h"
#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::arch {

/// What a family assumes where its config is silent (the defaults of transformers' config classes).
struct DecoderDefaults {
  int max_positions = 2048;
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  // Sizes that some published configs leave out; 0: required.
  int vocab = 0;
  int heads = 0;
  int kv_heads = 0;     ///< counts only together with `heads`
  int head_dim = 0;     ///< 0: hidden size / heads
  int rotated_dim = 0;  ///< dimensions of a head that RoPE sees; 0: all
  bool tied = false;
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
};

/// Reads sizes, norm, activation, RoPE, ends and dropouts; every layer gets full attention and a dense MLP.
void read_decoder(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults);

/// Sizes of attention heads: num_key_value_heads is the number of heads where it is absent or null; head_dim likewise
/// from `defaults` or hidden / heads.
void read_heads(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults);
/// Token ids, initializer range, element type: keys that all families share.
void read_training_details(ConfigReader& config, ModelSpec& spec);
Activation read_activation(ConfigReader& config, std::string_view key, std::string_view otherwise);
/// The number at `key`; `absent` where the key is not there, 0 where it is null.
double number_or_off(ConfigReader& config, std::string_view key, double absent);

/// `layer_types` where the config has it, else what `rule` says of each layer.
template <class Rule>
void read_layer_attention(ConfigReader& config, ModelSpec& spec, const Rule& rule);
/// Every layer slides iff sliding_window is given; `absent` is the window where the key is not there (0: none).
void read_uniform_window(ConfigReader& config, ModelSpec& spec, int absent);
/// Qwen's rule: with use_sliding_window, the layers from max_window_layers on slide.
void read_upper_window(ConfigReader& config, ModelSpec& spec);

/// self_attn.{q,k,v}_proj, q_norm and k_norm where the spec has them, o_proj.
void lay_out_attention(const ModelSpec& spec, LayerBuilder& layer);
/// `prefix`.{gate,up,down}_proj.
void lay_out_mlp(LayerBuilder& layer, std::string_view prefix, int hidden, int ffn, bool bias, Role role);
/// A whole Llama layer: norms, lay_out_attention, dense MLP.
void lay_out_dense(const ModelSpec& spec, bool moe, LayerBuilder& layer);
/// Embedding, final norm and head under "model." and "lm_head", or nested under "model.language_model.".
void lay_out_llama_ends(const ModelSpec& spec, Layout& layout);

/// Reads a `layer_types` list into `spec`; false where the config has none.
bool read_layer_types(ConfigReader& config, ModelSpec& spec);

template <class Rule>
void read_layer_attention(ConfigReader& config, ModelSpec& spec, const Rule& rule) {
  if (read_layer_types(config, spec)) return;
  for (int i = 0; i < spec.layers; ++i)
    spec.attention[static_cast<std::size_t>(i)] = rule(i) ? LayerAttention::kSliding : LayerAttention::kFull;
}

}  // namespace automodel::arch
