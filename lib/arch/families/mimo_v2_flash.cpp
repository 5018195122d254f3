#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace mimo_v2_flash {

constexpr double kRotated = 0.334;  // of a head: 64 of 192 channels

void read_moe(ConfigReader& config, ModelSpec& spec) {
  auto& moe = read_experts(config, spec, {"n_routed_experts", "num_local_experts"}, 0.0);
  set_sigmoid_router(moe);
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, true);
  moe.scaling = config.number({"routed_scaling_factor"}, 1.0);
  moe.groups = config.integer({"n_group"}, 1, 1, kMostLayers);
  moe.top_groups = config.integer({"topk_group"}, 1, 1, kMostLayers);
  read_mlp_layer_types(config, spec, 1);
  check_experts(config, spec);
}

/// Source: MiMoV2FlashConfig of transformers 5.23, which passes over the published config's other names of the same.
void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 5'000'000.0;
  defaults.partial_rotary = kRotated;
  defaults.head_dim = 192;
  config.ignore({"hybrid_layer_pattern", "hybrid_block_size", "swa_num_key_value_heads", "swa_num_attention_heads",
                 "swa_head_dim", "swa_v_head_dim", "swa_rope_theta", "add_swa_attention_sink_bias",
                 "add_full_attention_sink_bias", "attention_chunk_size", "attention_projection_layout",
                 "moe_layer_freq", "n_shared_experts", "topk_method", "scoring_func", "layernorm_epsilon"});
  read_decoder(config, spec, defaults);
  spec.qkv_bias = config.boolean({"attention_bias"}, false);
  spec.value_dim = config.integer({"v_head_dim"}, 128, 1, kMostWidth);
  spec.value_scale = config.number({"attention_value_scale"}, config.mentions("attention_value_scale") ? 1.0 : 0.707);
  spec.attention_sinks = true;
  const int before = config.integer({"sliding_window_size"}, 0, 1, kMostPositions);  // the query counts, too
  const int window = config.integer({"sliding_window"}, 129, 1, kMostPositions);
  spec.sliding_window = before > 0 ? before + 1 : window;
  constexpr int kPattern = 6;
  read_layer_attention(config, spec, [](int layer) { return layer != 0 && (layer + 1) % kPattern != 0; });
  // Layers with a window have twice the key heads that the config names.
  spec.full_heads = FullHeads{.kv_heads = spec.kv_heads, .head_dim = spec.head_dim};
  spec.kv_heads *= 2;
  if (spec.heads % spec.kv_heads != 0)
    config.refuse("indivisible", "num_key_value_heads")
        .says("num_attention_heads {} is not a multiple of the {} key-value heads of layers with a window", spec.heads,
              spec.kv_heads)
        .hint("they have twice num_key_value_heads");
  if (spec.value_dim > spec.head_dim)
    config.bad_value("v_head_dim", fmt::format("'v_head_dim' is {}", spec.value_dim),
                     fmt::format("it must be at most head_dim: {}", spec.head_dim));
  spec.sliding_rope = read_sliding_rope(config, spec, 10000.0);
  if (!config.has("rope_parameters")) spec.sliding_rope->rotary_dim = spec.rope.rotary_dim;
  read_moe(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const std::int64_t groups = spec.kv_heads_of(number);
  layer.norm(Part::kMixerNorm, "input_layernorm", spec.hidden);
  layer.linear(Part::kQuery, "self_attn.q_proj", spec.hidden, spec.query_width(number), spec.qkv_bias);
  layer.linear(Part::kKey, "self_attn.k_proj", spec.hidden, groups * spec.head_dim, spec.qkv_bias);
  layer.linear(Part::kValue, "self_attn.v_proj", spec.hidden, groups * spec.value_dim, spec.qkv_bias);
  layer.linear(Part::kAttentionOut, "self_attn.o_proj", spec.value_width(number), spec.hidden);
  if (spec.slides(number)) layer.numbers(Part::kSinks, "self_attn.attention_sink_bias", {spec.heads}, Initial::kNormal);
  layer.norm(Part::kFeedNorm, "post_attention_layernorm", spec.hidden);
  if (spec.is_moe(number))
    lay_out_experts(spec, layer);
  else
    lay_out_mlp(spec, layer);
}

}  // namespace mimo_v2_flash

extern const Family kMiMoV2Flash = {
    "mimo_v2_flash", "MiMoV2FlashForCausalLM",
    "MiMo-V2-Flash: sinks and twice the key heads in layers with a window, narrower values", mimo_v2_flash::read,
    mimo_v2_flash::lay_out_layer};

}  // namespace automodel::arch
