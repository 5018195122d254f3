#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/rope_config.h"

namespace automodel::arch {
namespace step3p5 {

constexpr double kTheta = 10000.0;

/// The numbers at `key`, one per layer, or one for all; those of layers for multi-token prediction may follow. Empty if
/// the config has none.
std::vector<double> numbers_of_layers(ConfigReader& config, const ModelSpec& spec, std::string_view key) {
  const auto count = static_cast<std::size_t>(spec.layers);
  if (config.has(key) && !config.is_list(key)) return std::vector(count, config.number({key}, 0));
  auto out = config.numbers(key, 0.0);
  if (out.empty()) return out;
  if (out.size() < count) {
    config.bad_value(key, fmt::format("'{}' has {} numbers", key, out.size()),
                     fmt::format("it must have one for each of the {} layers", spec.layers));
    return {};
  }
  out.resize(count);
  return out;
}

/// The number at `key` of the layers of a kind, which all have the same.
double of_kind(ConfigReader& config, const ModelSpec& spec, LayerAttention kind, std::string_view key,
               double otherwise) {
  const auto numbers = numbers_of_layers(config, spec, key);
  std::set<double> found;
  for (std::size_t layer = 0; layer < numbers.size(); ++layer)
    if (spec.attention[layer] == kind) found.insert(numbers[layer]);
  if (found.size() > 1)
    config.bad_value(key, fmt::format("'{}' differs among layers of {}", key, name_of(kind)),
                     "all full-attention layers have the same, and all layers with a window");
  return found.empty() ? otherwise : *found.begin();
}

/// transformers 5 writes rope_parameters by kind of layer. Published configs have lists, and rope_scaling, which is of
/// full-attention layers.
Rope read_rope_of(ConfigReader& config, const ModelSpec& spec, LayerAttention kind) {
  RopeDefaults defaults{kTheta, spec.head_dim, spec.max_positions, 1.0};
  auto given = config.child("rope_parameters");
  if (given && given->has(name_of(kind))) return read_rope(config, defaults, name_of(kind));
  if (given)
    config.bad_value("rope_parameters", "'rope_parameters' has no mapping for each kind of layer",
                     "it must have full_attention and sliding_attention; or write rope_theta and rope_scaling");
  defaults.lists = true;
  defaults.theta = of_kind(config, spec, kind, "rope_theta", kTheta);
  const double partial = of_kind(config, spec, kind, "partial_rotary_factors", 1.0);
  defaults.partial = partial;
  if (kind == LayerAttention::kFull) return read_rope(config, defaults);
  return {.theta = defaults.theta, .rotary_dim = static_cast<int>(spec.head_dim * partial)};
}

void read_attention(ConfigReader& config, ModelSpec& spec) {
  const auto types =
      names_of_layers(config, spec, "layer_types", {name_of(LayerAttention::kFull), name_of(LayerAttention::kSliding)});
  for (std::size_t layer = 0; layer < types.size(); ++layer)
    if (types[layer] == name_of(LayerAttention::kSliding)) spec.attention[layer] = LayerAttention::kSliding;
  spec.rope = read_rope_of(config, spec, LayerAttention::kFull);
  if (const auto scaled = config.texts("yarn_only_types");
      config.has("rope_scaling") && !scaled.empty() && scaled != std::vector<std::string>{"full_attention"})
    config.bad_value("yarn_only_types", fmt::format("'yarn_only_types' is {}", fmt::join(scaled, ", ")),
                     "rope_scaling applies to full_attention, and to it alone");
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.head_norm.emplace();
  spec.output_gate = OutputGate::kHeadSigmoid;
  spec.attention_scale = 1 / std::sqrt(config.number({"query_pre_attn_scalar"}, spec.head_dim));
  refuse_bidirectional(config);
}

/// Layers with a window may have other query heads. transformers writes them as per_layer_config, too.
void read_window(ConfigReader& config, ModelSpec& spec) {
  int heads = spec.heads;
  if (auto other = config.child("attention_other_setting")) {
    other->ignore({"true_head_dim"});
    heads = other->integer({"num_attention_heads"}, heads, 1, kMostWidth);
    if (other->integer({"num_attention_groups"}, spec.kv_heads, 1, kMostWidth) != spec.kv_heads ||
        other->integer({"head_dim"}, spec.head_dim, 1, kMostWidth) != spec.head_dim ||
        other->text({"attention_type"}, "sliding_attention") != "sliding_attention")
      config.bad_value("attention_other_setting", "layers with a window differ in more than their query heads",
                       "attention_type sliding_attention, and the other layers' num_attention_groups and head_dim");
  }
  heads = config.integer({"num_sliding_attention_heads"}, heads, 1, kMostWidth);
  spec.sliding_window = config.integer({"sliding_window"}, 0, 1, kMostPositions);
  if (std::ranges::count(spec.attention, LayerAttention::kSliding) == 0) return;
  if (!config.has("sliding_window"))
    config.refuse("missing-key", "sliding_window")
        .says("'sliding_window' is missing")
        .hint("some layers have a window");
  if (auto each = config.child("per_layer_config"))
    for (int layer = 0; layer < spec.layers; ++layer) {
      auto own = each->child(std::to_string(layer));
      const int normal = spec.slides(layer) ? heads : spec.heads;
      if (own && own->integer({"num_attention_heads"}, normal, 1, kMostWidth) != normal)
        config.bad_value("per_layer_config", fmt::format("the heads of layer {} are not those of its kind", layer),
                         "num_attention_heads, or num_sliding_attention_heads in layers with a window");
    }
  if (heads % spec.kv_heads != 0)
    config.refuse("indivisible", "num_attention_heads")
        .says("the {} heads of layers with a window are not a multiple of the {} key-value heads", heads, spec.kv_heads)
        .hint("every key-value head serves the same number of query heads");
  spec.sliding_rope = read_rope_of(config, spec, LayerAttention::kSliding);
  if (heads == spec.heads) return;
  spec.full_heads = FullHeads{.heads = spec.heads, .kv_heads = spec.kv_heads, .head_dim = spec.head_dim};
  spec.heads = heads;
}

/// Numbers of the layers with experts: a list, or a text with commas.
std::vector<int> read_moe_layers(ConfigReader& config) {
  if (!config.is_text("moe_layers_enum")) return config.integers("moe_layers_enum");
  const auto whole = config.text({"moe_layers_enum"}, "");
  std::vector<int> out;
  std::istringstream words(whole);
  for (std::string word; std::getline(words, word, ',');) {
    int number = 0;
    std::istringstream digits(word);
    if (digits >> number && (digits >> std::ws).eof())
      out.push_back(number);
    else if (word.find_first_not_of(' ') != std::string::npos)
      config.bad_value("moe_layers_enum", fmt::format("'{}' is not the number of a layer", word),
                       "numbers of layers with commas between them");
  }
  return out;
}

void read_moe(ConfigReader& config, ModelSpec& spec) {
  auto& moe =
      read_experts(config, spec, {"n_routed_experts", "moe_num_experts"}, 0.0, {"num_experts_per_tok", "moe_top_k"});
  moe.score = RouterScore::kSigmoid;
  moe.correction_bias = true;
  moe.float_router = config.boolean({"need_fp32_gate"}, false);
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.shared_ffn = config.integer({"share_expert_dim", "share_expert_dims"}, 1280, 1, kMostWidth);
  moe.shared_bias = spec.mlp_bias = config.boolean({"mlp_bias"}, false);
  moe.scaling = config.number({"moe_router_scaling_factor"}, 1.0);
  if (const auto given = config.text({"moe_router_activation"}, "sigmoid"); given != "sigmoid")
    config.bad_value("moe_router_activation", fmt::format("'moe_router_activation' is '{}'", given),
                     "only sigmoid is supported");
  const auto kinds = names_of_layers(config, spec, "mlp_layer_types", {"dense", "sparse"});
  const auto numbers = read_moe_layers(config);
  for (int layer = 0; layer < spec.layers; ++layer) {
    const bool listed = config.has("moe_layers_enum") ? std::ranges::find(numbers, layer) != numbers.end() : layer >= 3;
    const auto at = static_cast<std::size_t>(layer);
    spec.moe_layers[at] = kinds.empty() ? listed : kinds[at] == "sparse";
  }
  spec.expert_limits = numbers_of_layers(config, spec, "swiglu_limits");
  spec.mlp_limits = numbers_of_layers(config, spec, "swiglu_limits_shared");
  check_experts(config, spec);
}

/// Source: Step3p7TextConfig of transformers 5.23, with the other names of published configs.
void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 128000;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 0;
  defaults.head_dim = 128;
  defaults.kv_heads_key = config.has("num_attention_groups") ? "num_attention_groups" : "num_key_value_heads";
  defaults.pad_token = 1;
  read_decoder(config, spec, defaults);
  spec.norm_scale = NormScale::kOnePlusInFloat;
  // transformers' class has all of these and reads none of the keys; published configs name them for other classes.
  for (const auto* key : {"use_moe", "norm_expert_weight", "use_moe_router_bias", "use_head_wise_attn_gate",
                          "use_qk_norm", "zero_centered", "gating"})
    require_true(config, key);
  config.ignore({"max_seq_len", "moe_layer_offset", "moe_every_n_layer", "att_impl_type", "use_mfa", "sink",
                 "use_rope_layers", "mtp_layer_types", "mtp_mlp_layer_types", "mtp_base_layer_idx"});
  read_attention(config, spec);
  read_window(config, spec);
  read_moe(config, spec);
  // Folders hold these layers, too, where a config that leaves them out still has their kinds.
  const int listed = static_cast<int>(config.texts("layer_types").size()) - spec.layers;
  spec.mtp_layers = std::max(listed, config.integer({"num_nextn_predict_layers", "num_mtp_layers"}, 0, 0, kMostLayers));
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  layer.norm(Part::kMixerNorm, "input_layernorm", spec.hidden);
  lay_out_gated_attention(spec, number, layer);
  layer.norm(Part::kFeedNorm, "post_attention_layernorm", spec.hidden);
  if (spec.is_moe(number))
    lay_out_experts(
        spec, layer,
        {.router = "moe.gate", .router_bias = "moe.router_bias", .experts = "moe.experts", .shared = "share_expert"});
  else
    lay_out_mlp(spec, layer);
}

}  // namespace step3p5

extern const Family kStep35 = {
    "step3p5", "Step3p5ForCausalLM",
    "Step 3.5, 3.7: other query heads in layers with a window, gated heads, a sigmoid router", step3p5::read,
    step3p5::lay_out_layer};

}  // namespace automodel::arch
