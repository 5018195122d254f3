#include <string>
#include <vector>

#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace laguna {

/// Heads by layer, where full-attention layers have others than those with a window.
void read_heads_of_layers(ConfigReader& config, ModelSpec& spec) {
  const auto given = config.integers("num_attention_heads_per_layer");
  if (given.empty()) return;
  if (given.size() != static_cast<std::size_t>(spec.layers))
    return config.bad_value("num_attention_heads_per_layer",
                            fmt::format("'num_attention_heads_per_layer' has {} numbers", given.size()),
                            fmt::format("it must have one for each of the {} layers", spec.layers));
  int full = 0, window = 0;
  for (int layer = 0; layer < spec.layers; ++layer) {
    const int heads = given[static_cast<std::size_t>(layer)];
    int& kind = spec.slides(layer) ? window : full;
    if (heads < 1 || heads > kMostWidth || heads % spec.kv_heads != 0)
      return void(config.refuse("indivisible", "num_attention_heads_per_layer")
                      .says("the {} heads of layer {} are not a multiple of num_key_value_heads {}", heads, layer,
                            spec.kv_heads)
                      .hint("every key-value head serves the same number of query heads"));
    if (kind != 0 && kind != heads)
      return config.bad_value("num_attention_heads_per_layer",
                              fmt::format("layer {} has {} heads, and one like it {}", layer, heads, kind),
                              "all full-attention layers have the same heads, and all layers with a window");
    kind = heads;
  }
  spec.heads = window > 0 ? window : full;
  if (full > 0 && full != spec.heads)
    spec.full_heads = FullHeads{.heads = full, .kv_heads = spec.kv_heads, .head_dim = spec.head_dim};
}

void read_moe(ConfigReader& config, ModelSpec& spec) {
  auto& moe = read_experts(config, spec, {"num_experts"}, 0.001);
  moe.score = RouterScore::kSigmoid;
  moe.correction_bias = true;
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.shared_ffn = config.integer({"shared_expert_intermediate_size"}, 512, 1, kMostWidth);
  moe.scaling = config.number({"moe_routed_scaling_factor"}, 1.0);
  moe.logit_softcap = config.number({"moe_router_logit_softcapping"}, 0.0);
  if (config.boolean({"moe_apply_router_weight_on_input"}, false))
    config.bad_value("moe_apply_router_weight_on_input", "weights of experts on their input are not supported",
                     "transformers does not support them either");
  read_mlp_layer_types(config, spec, 1);
  check_experts(config, spec);
}

/// Every channel has a gate, rather than every head, with all values but true and "per-head".
OutputGate read_gate(ConfigReader& config) {
  const auto gate = [](bool channels) { return channels ? OutputGate::kChannelSoftplus : OutputGate::kHeadSoftplus; };
  if (!config.is_text("gating")) return gate(!config.boolean({"gating"}, true));
  const auto kind = config.text({"gating"}, "");
  if (kind != "per-head" && kind != "per-element")
    config.bad_value("gating", fmt::format("unknown gating '{}'", kind), "known: per-head, per-element, true");
  return gate(kind == "per-element");
}

/// Source: LagunaConfig of transformers 5.23.
void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.rope_theta = 500000.0;
  defaults.head_dim = 128;
  defaults.partial_rotary = config.has("rope_parameters") ? 1.0 : 0.5;
  read_decoder(config, spec, defaults);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.head_norm.emplace();
  spec.sliding_window = config.integer({"sliding_window"}, 512, 1, kMostPositions);
  read_layer_attention(config, spec, [](int) { return false; });
  spec.sliding_rope = read_sliding_rope(config, spec, 10000.0);
  read_heads_of_layers(config, spec);
  spec.output_gate = read_gate(config);
  read_moe(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  layer.norm(Part::kMixerNorm, "input_layernorm", spec.hidden);
  lay_out_gated_attention(spec, number, layer);
  layer.norm(Part::kFeedNorm, "post_attention_layernorm", spec.hidden);
  if (spec.is_moe(number))
    lay_out_experts(spec, layer, {.router_bias = "mlp.experts.e_score_correction_bias", .shared = "mlp.shared_expert"});
  else
    lay_out_mlp(spec, layer);
}

}  // namespace laguna

extern const Family kLaguna = {"laguna", "LagunaForCausalLM",
                               "Laguna: other query heads in layers with a window, gated outputs, a sigmoid router",
                               laguna::read, laguna::lay_out_layer};

}  // namespace automodel::arch
