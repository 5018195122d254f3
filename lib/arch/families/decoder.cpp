#include "arch/families/decoder.h"

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "arch/rope_config.h"
#include "base/spelling.h"

namespace automodel::arch {
namespace {

constexpr std::array<std::pair<std::string_view, Activation>, 8> kActivations = {{
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
}};

void read_dtype(ConfigReader& config, ModelSpec& spec) {
  const auto name = config.text({"dtype", "torch_dtype"}, "auto");
  if (name == "auto") return;
  spec.dtype = parse_dtype(name);
  if (!spec.dtype)
    config.bad_value(config.has("dtype") ? "dtype" : "torch_dtype", fmt::format("unknown element type '{}'", name),
                     "known are float32, bfloat16, float16, float64");
}

}  // namespace

Activation read_activation(ConfigReader& config, std::string_view key, std::string_view otherwise) {
  const auto name = config.text({key}, otherwise);
  std::vector<std::string_view> known;
  for (const auto& [text, activation] : kActivations) {
    if (text == name) return activation;
    known.push_back(text);
  }
  config.bad_value(key, fmt::format("unknown activation '{}'", name), suggestion(name, known));
  return Activation::kSilu;
}

double number_or_off(ConfigReader& config, std::string_view key, double absent) {
  return config.number({key}, config.mentions(key) ? 0.0 : absent);
}

void read_training_details(ConfigReader& config, ModelSpec& spec) {
  spec.initializer_range = config.number({"initializer_range"}, 0.02);
  spec.pad_token = config.integer("pad_token_id");
  spec.bos_token = config.integer("bos_token_id");
  spec.eos_tokens = config.integers("eos_token_id");
  if (spec.pad_token && *spec.pad_token < 0) spec.pad_token = std::nullopt;  // some configs write -1 for "none"
  read_dtype(config, spec);
}

void read_heads(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults) {
  const bool assumed = defaults.heads > 0 && !config.has("num_attention_heads");
  spec.heads = assumed ? defaults.heads : config.required({"num_attention_heads"}, 1, kMostWidth);
  spec.kv_heads = config.integer({"num_key_value_heads"}, assumed ? defaults.kv_heads : spec.heads, 1, kMostWidth);
  spec.head_dim = config.integer({"head_dim"}, defaults.head_dim, 1, kMostWidth);
  if (config.good({"num_attention_heads", "num_key_value_heads"}) && spec.heads % spec.kv_heads != 0)
    config.refuse(
        "indivisible", "num_key_value_heads",
        fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}", spec.heads, spec.kv_heads),
        "every key-value head serves the same number of query heads");
  if (spec.head_dim != 0) return;
  spec.head_dim = std::max(1, spec.hidden / spec.heads);
  if (config.good({"hidden_size", "num_attention_heads"}) && spec.hidden % spec.heads != 0)
    config.refuse("indivisible", "num_attention_heads",
                  fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", spec.hidden, spec.heads),
                  "give head_dim, or sizes that divide");
}

void read_decoder(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults) {
  spec.hidden = config.required({"hidden_size"}, 1, kMostWidth);
  spec.layers = config.required({"num_hidden_layers"}, 1, kMostLayers);
  spec.ffn = config.required({"intermediate_size"}, 1, kMostWidth);
  spec.vocab = defaults.vocab > 0 ? config.integer({"vocab_size"}, defaults.vocab, 1, kMostVocab)
                                  : config.required({"vocab_size"}, 1, kMostVocab);
  spec.max_positions = config.integer({"max_position_embeddings"}, defaults.max_positions, 1, kMostPositions);
  read_heads(config, spec, defaults);
  spec.norm_eps = config.number({"rms_norm_eps"}, defaults.norm_eps);
  spec.activation = read_activation(config, defaults.activation_key, defaults.activation);
  const int rotated = defaults.rotated_dim > 0 ? defaults.rotated_dim : spec.head_dim;
  spec.rope = read_rope(config, {defaults.rope_theta, rotated, spec.max_positions});
  spec.tied_embeddings = config.boolean({"tie_word_embeddings"}, defaults.tied);
  spec.attention_dropout = config.number({"attention_dropout"}, 0.0);
  spec.attention.assign(static_cast<std::size_t>(spec.layers), LayerAttention::kFull);
  spec.moe_layers.assign(static_cast<std::size_t>(spec.layers), false);
  read_training_details(config, spec);
}

bool read_layer_types(ConfigReader& config, ModelSpec& spec) {
  const auto types = config.texts("layer_types");
  if (types.empty()) return false;
  if (types.size() != static_cast<std::size_t>(spec.layers)) {
    config.bad_value("layer_types", fmt::format("'layer_types' names {} layers", types.size()),
                     fmt::format("it must name each of the {} layers", spec.layers));
    return true;
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == name_of(LayerAttention::kSliding))
      spec.attention[i] = LayerAttention::kSliding;
    else if (types[i] != name_of(LayerAttention::kFull))
      config.bad_value("layer_types", fmt::format("unknown kind of attention '{}' of layer {}", types[i], i),
                       "known are full_attention, sliding_attention");
  }
  return true;
}

void read_uniform_window(ConfigReader& config, ModelSpec& spec, int absent) {
  spec.sliding_window =
      config.integer({"sliding_window"}, config.mentions("sliding_window") ? 0 : absent, 0, kMostPositions);
  const bool slides = spec.sliding_window > 0;
  read_layer_attention(config, spec, [&](int) { return slides; });
}

void read_upper_window(ConfigReader& config, ModelSpec& spec) {
  const bool used = config.boolean({"use_sliding_window"}, false);
  const int window =
      config.integer({"sliding_window"}, config.mentions("sliding_window") ? 0 : 4096, 0, kMostPositions);
  const int first = config.integer({"max_window_layers"}, 28, 0, kMostPositions);
  spec.sliding_window = used ? window : 0;
  const bool slides = spec.sliding_window > 0;
  read_layer_attention(config, spec, [&](int layer) { return slides && layer >= first; });
  if (!slides) spec.attention.assign(spec.attention.size(), LayerAttention::kFull);
}

void lay_out_attention(const ModelSpec& spec, LayerBuilder& layer) {
  const auto query = std::int64_t{spec.heads} * spec.head_dim;
  const auto key = std::int64_t{spec.kv_heads} * spec.head_dim;
  layer.linear("self_attn.q_proj", spec.hidden, query, spec.qkv_bias, Role::kAttention);
  layer.linear("self_attn.k_proj", spec.hidden, key, spec.qkv_bias, Role::kAttention);
  layer.linear("self_attn.v_proj", spec.hidden, key, spec.qkv_bias, Role::kAttention);
  if (spec.qk_norm) {
    layer.norm("self_attn.q_norm", spec.head_dim);
    layer.norm("self_attn.k_norm", spec.head_dim);
  }
  layer.linear("self_attn.o_proj", query, spec.hidden, spec.output_bias, Role::kAttention);
  if (spec.attention_sinks) layer.tensor("self_attn.sinks", {spec.heads}, Role::kAttention);
}

void lay_out_mlp(LayerBuilder& layer, std::string_view prefix, int hidden, int ffn, bool bias, Role role) {
  const std::string name(prefix);
  layer.linear(name + ".gate_proj", hidden, ffn, bias, role);
  layer.linear(name + ".up_proj", hidden, ffn, bias, role);
  layer.linear(name + ".down_proj", ffn, hidden, bias, role);
}

void lay_out_dense(const ModelSpec& spec, bool /*moe*/, LayerBuilder& layer) {
  const bool norm_bias = spec.norm == NormKind::kLayerNorm;
  layer.norm("input_layernorm", spec.hidden, norm_bias);
  lay_out_attention(spec, layer);
  layer.norm("post_attention_layernorm", spec.hidden, norm_bias);
  if (spec.sandwich_norms) layer.norm("pre_feedforward_layernorm", spec.hidden, norm_bias);
  if (spec.gated_mlp) {
    lay_out_mlp(layer, "mlp", spec.hidden, spec.ffn, spec.mlp_bias, Role::kMlp);
  } else {
    layer.linear("mlp.up_proj", spec.hidden, spec.ffn, spec.mlp_bias, Role::kMlp);
    layer.linear("mlp.down_proj", spec.ffn, spec.hidden, spec.mlp_bias, Role::kMlp);
  }
  if (spec.sandwich_norms) layer.norm("post_feedforward_layernorm", spec.hidden, norm_bias);
}

void lay_out_llama_ends(const ModelSpec& spec, Layout& layout) {
  layout.base = spec.nested_in.empty() ? "model" : "model.language_model";
  layout.layers = layout.base + ".layers";
  layout.embeddings = {layout.base + ".embed_tokens"};
  layout.norm = layout.base + ".norm";
  layout.head = "lm_head";
  layout.rotary = layout.base + ".rotary_emb";
  LayerBuilder(layout.embedding_parameters)
      .tensor(layout.embeddings[0] + ".weight", {spec.vocab, spec.hidden}, Role::kEmbedding);
  LayerBuilder(layout.norm_parameters).norm(layout.norm, spec.hidden, spec.norm == NormKind::kLayerNorm);
}

}  // namespace automodel::arch
