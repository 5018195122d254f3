#include "arch/families/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "arch/families/experts.h"
#include "arch/rope_config.h"
#include "base/spelling.h"

namespace automodel::arch {
namespace {

constexpr std::array<std::pair<std::string_view, Activation>, 10> kActivations = {{
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kRelu2},
    {"xielu", Activation::kXielu},
}};

void read_dtype(ConfigReader& config, ModelSpec& spec) {
  const auto name = config.text({"dtype", "torch_dtype"}, "auto");
  if (name == "auto") return;
  spec.dtype = parse_dtype(name);
  if (!spec.dtype)
    config.bad_value(config.has("dtype") ? "dtype" : "torch_dtype", fmt::format("unknown element type '{}'", name),
                     "known: float32, bfloat16, float16, float64");
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

void read_query_growth(ConfigReader& config, ModelSpec& spec) {
  auto scaling = rope_settings(config);
  if (!scaling) return;
  spec.query_growth = scaling->number({"llama_4_scaling_beta"}, 0.0);
  if (spec.query_growth != 0 && spec.rope.original_max_positions == 0)
    scaling->refuse("missing-key", "original_max_position_embeddings")
        .says("'original_max_position_embeddings' is missing")
        .hint("llama_4_scaling_beta counts positions in such contexts");
}

void read_training_details(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults) {
  spec.initializer_range = config.number({"initializer_range"}, defaults.initializer_range);
  spec.pad_token = config.integer("pad_token_id");
  if (!config.mentions("pad_token_id") && defaults.pad_token && *defaults.pad_token < spec.vocab)
    spec.pad_token = defaults.pad_token;
  spec.bos_token = config.integer("bos_token_id");
  spec.eos_tokens = config.integers("eos_token_id");
  if (spec.pad_token && *spec.pad_token < 0) spec.pad_token = std::nullopt;  // some configs write -1 for "none"
  read_dtype(config, spec);
}

void read_heads(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults) {
  const bool assumed = defaults.heads > 0 && !config.has(defaults.heads_key);
  spec.heads = assumed ? defaults.heads : config.required({defaults.heads_key}, 1, kMostWidth);
  const bool silent = defaults.kv_heads > 0 && !config.mentions(defaults.kv_heads_key);
  spec.kv_heads = config.integer({defaults.kv_heads_key}, silent ? defaults.kv_heads : spec.heads, 1, kMostWidth);
  spec.head_dim = config.integer({"head_dim"}, defaults.head_dim, 1, kMostWidth);
  if (config.good({"num_attention_heads", "num_key_value_heads"}) && spec.heads % spec.kv_heads != 0)
    config.refuse("indivisible", "num_key_value_heads")
        .says("num_attention_heads {} is not a multiple of num_key_value_heads {}", spec.heads, spec.kv_heads)
        .hint("every key-value head serves the same number of query heads");
  if (spec.head_dim != 0) return;
  spec.head_dim = std::max(1, spec.hidden / spec.heads);
  if (config.good({"hidden_size", "num_attention_heads"}) && spec.hidden % spec.heads != 0)
    config.refuse("indivisible", "num_attention_heads")
        .says("hidden_size {} is not a multiple of num_attention_heads {}", spec.hidden, spec.heads)
        .hint("give head_dim, or sizes that divide");
}

void read_decoder(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults) {
  spec.hidden = config.required({"hidden_size"}, 1, kMostWidth);
  spec.layers = defaults.layers > 0 ? config.integer({defaults.layers_key}, defaults.layers, 1, kMostLayers)
                                    : config.required({defaults.layers_key}, 1, kMostLayers);
  spec.ffn = defaults.ffn_times_hidden == 0
                 ? config.required({defaults.ffn_key}, 1, kMostWidth)
                 : config.integer({defaults.ffn_key}, defaults.ffn_times_hidden * spec.hidden, 1, kMostWidth);
  spec.vocab = defaults.vocab > 0 ? config.integer({"vocab_size"}, defaults.vocab, 1, kMostVocab)
                                  : config.required({"vocab_size"}, 1, kMostVocab);
  spec.max_positions = config.integer({"max_position_embeddings"}, defaults.max_positions, 1, kMostPositions);
  read_heads(config, spec, defaults);
  spec.norm_eps = config.number({defaults.norm_key}, defaults.norm_eps);
  spec.activation = read_activation(config, defaults.activation_key, defaults.activation);
  const int rotated = defaults.rotated_dim > 0 ? defaults.rotated_dim : spec.head_dim;
  if (defaults.rope_theta > 0)
    spec.rope = read_rope(config, {defaults.rope_theta, rotated, spec.max_positions, defaults.partial_rotary});
  spec.tied_embeddings = config.boolean({"tie_word_embeddings"}, defaults.tied);
  spec.attention_dropout = config.number({"attention_dropout"}, 0.0);
  spec.attention.assign(static_cast<std::size_t>(spec.layers), LayerAttention::kFull);
  spec.moe_layers.assign(static_cast<std::size_t>(spec.layers), false);
  read_training_details(config, spec, defaults);
}

Rope read_sliding_rope(ConfigReader& config, const ModelSpec& spec, double theta) {
  const auto both = config.child("rope_parameters");
  if (!config.has("rope_scaling") && both && both->has("sliding_attention"))
    return read_rope(config, {theta, spec.head_dim, spec.max_positions, 1.0}, "sliding_attention");
  Rope rope;
  rope.theta = theta;
  rope.rotary_dim = spec.head_dim;
  return rope;
}

std::vector<std::string> names_of_layers(ConfigReader& config, const ModelSpec& spec, std::string_view key,
                                         std::initializer_list<std::string_view> known) {
  auto out = config.texts(key);
  if (out.empty()) return out;
  if (out.size() < static_cast<std::size_t>(spec.layers)) {
    config.bad_value(key, fmt::format("'{}' names {} layers", key, out.size()),
                     fmt::format("it must name each of the {} layers", spec.layers));
    return {};
  }
  out.resize(static_cast<std::size_t>(spec.layers));
  for (const auto& name : out)
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      config.bad_value(key, fmt::format("unknown kind '{}' in '{}'", name, key),
                       fmt::format("known: {}", fmt::join(known, ", ")));
      return {};
    }
  return out;
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
                       "known: full_attention, sliding_attention");
  }
  return true;
}

bool read_mixers(ConfigReader& config, ModelSpec& spec, std::string_view key, std::span<const MixerWord> words) {
  const auto types = config.texts(key);
  if (types.empty()) return false;
  if (types.size() != static_cast<std::size_t>(spec.layers)) {
    config.bad_value(key, fmt::format("'{}' names {} layers", key, types.size()),
                     fmt::format("it must name each of the {} layers", spec.layers));
    return true;
  }
  std::vector<std::string_view> known;
  for (const auto& each : words) known.push_back(each.word);
  spec.mixers.assign(types.size(), Mixer::kAttention);
  for (std::size_t i = 0; i < types.size(); ++i) {
    const auto found =
        std::find_if(words.begin(), words.end(), [&](const auto& each) { return each.word == types[i]; });
    if (found == words.end())
      config.bad_value(key, fmt::format("unknown kind '{}' of layer {}", types[i], i),
                       fmt::format("known: {}", join(known)));
    else
      spec.mixers[i] = found->mixer;
  }
  return true;
}

void read_uniform_window(ConfigReader& config, ModelSpec& spec, int absent) {
  spec.sliding_window =
      config.integer({"sliding_window"}, config.mentions("sliding_window") ? 0 : absent, 0, kMostPositions);
  const bool slides = spec.sliding_window > 0;
  read_layer_attention(config, spec, [&](int) { return slides; });
}

void read_pattern_window(ConfigReader& config, ModelSpec& spec, int window, int absent) {
  spec.sliding_window =
      config.integer({"sliding_window"}, config.mentions("sliding_window") ? 0 : window, 0, kMostPositions);
  // transformers writes 0 where there is no window.
  const int pattern = config.integer({"sliding_window_pattern", "_sliding_window_pattern"}, absent,
                                     spec.sliding_window == 0 ? 0 : 1, kMostLayers);
  read_layer_attention(config, spec, [&](int layer) { return pattern > 0 && (layer + 1) % pattern != 0; });
  if (spec.sliding_window == 0) spec.attention.assign(spec.attention.size(), LayerAttention::kFull);
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

DecoderDefaults gemma_defaults() {
  return {.head_dim = 256,
          .tied = true,
          .pad_token = 0,
          .activation_key = "hidden_activation",
          .activation = "gelu_pytorch_tanh"};
}

void read_gemma(ConfigReader& config, ModelSpec& spec) {
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden));
  spec.round_embedding_scale = true;
}

void refuse_bidirectional(ConfigReader& config) {
  if (config.boolean({"use_bidirectional_attention"}, false))
    config.bad_value("use_bidirectional_attention", "bidirectional attention is not supported",
                     "a causal language model attends only to earlier tokens");
}

void lay_out_attention(const ModelSpec& spec, LayerBuilder& layer, const LayerNames& names) {
  const auto query = std::int64_t{spec.heads} * spec.head_dim;
  const auto key = std::int64_t{spec.kv_heads} * spec.head_dim;
  const std::string module(names.attention);
  layer.linear(Part::kQuery, module + ".q_proj", spec.hidden, spec.attention_gate ? 2 * query : query, spec.qkv_bias);
  layer.linear(Part::kKey, module + ".k_proj", spec.hidden, key, spec.qkv_bias);
  layer.linear(Part::kValue, module + ".v_proj", spec.hidden, key, spec.qkv_bias);
  layer.head_norms(names.query_norm, names.key_norm);
  layer.linear(Part::kAttentionOut, names.output, query, spec.hidden, spec.output_bias);
  if (spec.attention_sinks)
    layer.tensor(Part::kSinks, "self_attn.sinks", {.name = "self_attn.sinks", .shape = {spec.heads}});
}

void lay_out_gated_attention(const ModelSpec& spec, int number, LayerBuilder& layer, std::string_view gate) {
  const std::int64_t heads = spec.heads_of(number), query = heads * spec.head_dim,
                     key = std::int64_t{spec.kv_heads} * spec.head_dim;
  layer.linear(Part::kQuery, "self_attn.q_proj", spec.hidden, query, spec.qkv_bias);
  layer.linear(Part::kKey, "self_attn.k_proj", spec.hidden, key, spec.qkv_bias);
  layer.linear(Part::kValue, "self_attn.v_proj", spec.hidden, key, spec.qkv_bias);
  layer.head_norms("self_attn.q_norm", "self_attn.k_norm");
  layer.linear(Part::kAttentionGate, gate, spec.hidden, is_per_channel(spec.output_gate) ? query : heads);
  layer.linear(Part::kAttentionOut, "self_attn.o_proj", query, spec.hidden, spec.output_bias);
}

void lay_out_mlp(const ModelSpec& spec, LayerBuilder& layer, std::string_view module) {
  const std::string prefix(module);
  if (spec.gated_mlp) layer.linear(Part::kGate, prefix + ".gate_proj", spec.hidden, spec.ffn, spec.mlp_bias);
  layer.linear(Part::kUp, prefix + ".up_proj", spec.hidden, spec.ffn, spec.mlp_bias);
  layer.linear(Part::kDown, prefix + ".down_proj", spec.ffn, spec.hidden, spec.mlp_bias);
}

void lay_out_mlp(const ModelSpec& spec, LayerBuilder& layer) {
  lay_out_mlp(spec, layer, "mlp");
}

void lay_out_joined_mlp(const ModelSpec& spec, LayerBuilder& layer) {
  layer.linear(Part::kGateUp, "mlp.gate_up_proj", spec.hidden, std::int64_t{2} * spec.ffn, spec.mlp_bias);
  layer.linear(Part::kDown, "mlp.down_proj", spec.ffn, spec.hidden, spec.mlp_bias);
}

void lay_out_xielu(std::string_view module, LayerBuilder& layer) {
  const auto number = [&](const char* name, Shape shape, bool trainable, double start) {
    layer.tensor(Part::kActivation, module,
                 {.name = std::string(module) + "." + name,
                  .shape = shape,
                  .trainable = trainable,
                  .initial = Initial::kValue,
                  .start = start});
  };
  const double beta = 0.5, alpha = 0.8;  // softplus(alpha_p) and beta + softplus(alpha_n) start at alpha
  number("alpha_p", {1}, true, std::log(std::expm1(alpha)));
  number("alpha_n", {1}, true, std::log(std::expm1(alpha - beta)));
  number("beta", {}, false, beta);
  number("eps", {}, false, -1e-6);
}

void lay_out_blocks(const ModelSpec& spec, LayerBuilder& layer, const LayerNames& names, LayOut feed,
                    LayOut attention) {
  const auto norm = [&](Part part, std::string_view name) {
    if (!name.empty()) layer.norm(part, name, spec.hidden);
  };
  norm(Part::kMixerNorm, names.mixer_norm);
  if (attention != nullptr)
    attention(spec, layer);
  else
    lay_out_attention(spec, layer, names);
  norm(Part::kMixerOutNorm, names.mixer_out_norm);
  norm(Part::kFeedNorm, names.feed_norm);
  feed(spec, layer);
  norm(Part::kFeedOutNorm, names.feed_out_norm);
}

void lay_out_llama(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(lay_out_experts) : LayOut(lay_out_mlp));
}

void lay_out_ends(const ModelSpec& spec, Layout& layout, const EndNames& names) {
  layout.base = names.base;
  const auto below = [&](std::string_view name) { return layout.base + "." + std::string(name); };
  layout.layers = below(names.layers);
  layout.embeddings = {below(names.embedding)};
  layout.norm = below(names.norm);
  layout.head = names.head;
  if (!names.rotary.empty()) layout.rotary = below(names.rotary);
  layout.embedding_parameters = {table(layout.embeddings[0] + ".weight", spec.vocab, spec.hidden, Role::kEmbedding)};
  layout.norm_parameters = norm_parameters(spec, layout.norm, spec.hidden);
  if (spec.plain_end_norm) layout.norm_parameters.front().initial = Initial::kOne;
}

void lay_out_llama_ends(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.base = spec.nested_in.empty() ? "model" : "model.language_model"});
}

}  // namespace automodel::arch
