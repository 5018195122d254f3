#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace gemma4_text {

/// transformers 5 writes the heads of layers as per_layer_config, published folders those of full-attention layers as
/// global_head_dim and num_global_key_value_heads. Source of the defaults: Gemma4TextConfig of transformers 5.23.
FullHeads read_full_heads(ConfigReader& config, const ModelSpec& spec) {
  FullHeads out{.kv_heads = spec.kv_heads, .values_are_keys = config.boolean({"attention_k_eq_v"}, false)};
  out.head_dim = config.integer({"global_head_dim"}, 512, 1, kMostWidth);
  const int groups = config.integer({"num_global_key_value_heads"}, spec.kv_heads, 1, kMostWidth);
  if (out.values_are_keys) out.kv_heads = groups;
  auto each = config.child("per_layer_config");
  if (!each) return out;
  bool first = true;
  for (int number = 0; number < spec.layers; ++number) {
    auto layer = each->child(std::to_string(number));
    const int width = layer ? layer->integer({"head_dim"}, spec.head_dim, 1, kMostWidth) : spec.head_dim;
    const int keys = layer ? layer->integer({"num_key_value_heads"}, spec.kv_heads, 1, kMostWidth) : spec.kv_heads;
    if (!spec.slides(number) && first) {
      out.head_dim = width;
      out.kv_heads = keys;
      first = false;
    }
    if (width == (spec.slides(number) ? spec.head_dim : out.head_dim) &&
        keys == (spec.slides(number) ? spec.kv_heads : out.kv_heads))
      continue;
    config.bad_value("per_layer_config", fmt::format("the heads of layer {} are not those of its kind", number),
                     "all full-attention layers have the same heads, and all others those of the model");
    return out;
  }
  return out;
}

/// The last layers use the keys and values of earlier ones of their kind.
void read_sharing(ConfigReader& config, ModelSpec& spec) {
  spec.layers_without_keys = config.integer({"num_kv_shared_layers"}, 0, 0, kMostLayers);
  const int own = spec.layers - spec.layers_without_keys;
  bool found = own > 0;
  for (int layer = std::max(own, 0); layer < spec.layers && found; ++layer)
    found = spec.slides(spec.keys_of(layer)) == spec.slides(layer);
  if (!found) {
    config.bad_value("num_kv_shared_layers",
                     fmt::format("no layer before the last {} has keys for them", spec.layers_without_keys),
                     "a layer with the same kind of attention must come before them");
    spec.layers_without_keys = 0;
  }
  if (!config.boolean({"use_double_wide_mlp"}, false) || spec.layers_without_keys == 0) return;
  for (int layer = 0; layer < spec.layers; ++layer) spec.ffns.push_back(spec.has_keys(layer) ? spec.ffn : 2 * spec.ffn);
  spec.ffn *= 2;
}

void read_moe(ConfigReader& config, ModelSpec& spec) {
  if (!config.boolean({"enable_moe_block"}, false)) {
    config.ignore({"num_experts", "top_k_experts", "moe_intermediate_size"});
    return;
  }
  auto& moe = read_experts(config, spec, {"num_experts"}, 0.0, {"top_k_experts"});
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.shared_ffn = spec.ffn;
  moe.beside = moe.joined = true;
  check_experts(config, spec);
  if (!spec.ffns.empty())
    config.bad_value("use_double_wide_mlp", "MLPs beside experts have one width", "use_double_wide_mlp: false");
}

void read(ConfigReader& config, ModelSpec& spec) {
  auto defaults = gemma_defaults();
  defaults.max_positions = 131072;
  defaults.rope_theta = 1'000'000.0;
  defaults.partial_rotary = 1.0;
  defaults.vocab = 262144;
  defaults.layers = 30;
  defaults.heads = 8;
  defaults.kv_heads = 4;
  read_decoder(config, spec, defaults);
  spec.norm_scale = NormScale::kInFloat;
  spec.branch_norms = true;
  spec.head_norm.emplace();
  spec.value_norm = true;
  read_gemma(config, spec);
  spec.attention_scale = 1;
  spec.logit_softcap = config.number({"final_logit_softcapping"}, 0.0);
  spec.layer_scale = true;
  spec.sliding_window = config.integer({"sliding_window"}, 512, 1, kMostPositions);
  constexpr int kPattern = 6;
  read_layer_attention(config, spec, [](int layer) { return (layer + 1) % kPattern != 0; });
  spec.attention.back() = LayerAttention::kFull;
  spec.full_heads = read_full_heads(config, spec);
  if (spec.heads % spec.full_heads->kv_heads != 0)
    config.refuse("indivisible", "num_attention_heads")
        .says("num_attention_heads {} is not a multiple of the {} key-value heads of full-attention layers", spec.heads,
              spec.full_heads->kv_heads)
        .hint("every key-value head serves the same number of query heads");
  if (!config.has("rope_parameters") && !config.has("rope_scaling")) {
    spec.rope.kind = RopeKind::kProportional;
    spec.rope.share = 0.25;
  } else if (spec.rope.kind != RopeKind::kProportional && spec.rope.rotary_dim != spec.head_dim) {
    config.bad_value("rope_parameters", "RoPE of full-attention layers is partial, but not proportional",
                     "rope_type: proportional");
  }
  spec.rope.rotary_dim = spec.full_heads->head_dim;
  spec.sliding_rope = read_sliding_rope(config, spec, 10000.0);
  read_sharing(config, spec);
  read_moe(config, spec);
  spec.layer_input = config.integer({"hidden_size_per_layer_input"},
                                    config.mentions("hidden_size_per_layer_input") ? 0 : 256, 0, kMostWidth);
  spec.layer_input_rows = config.integer({"vocab_size_per_layer_input"}, 262144, 1, kMostVocab);
  if (spec.layer_input == 0) spec.layer_input_rows = 0;
  if (spec.layer_input > 0 && spec.layer_input_rows < spec.vocab)
    config.bad_value(
        "vocab_size_per_layer_input",
        fmt::format("the table of layer inputs has {} rows for a vocabulary of {}", spec.layer_input_rows, spec.vocab),
        "every token needs one");
  if (config.text({"use_bidirectional_attention"}, "vision") != "vision")
    config.bad_value("use_bidirectional_attention", "bidirectional attention is not supported",
                     "a causal language model attends only to earlier tokens");
}

void lay_out_attention(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const std::int64_t width = spec.head_dim_of(number), query = spec.heads * width,
                     key = spec.kv_heads_of(number) * width;
  layer.linear(Part::kQuery, "self_attn.q_proj", spec.hidden, query, spec.qkv_bias);
  layer.rms_norm(Part::kQueryNorm, "self_attn.q_norm", width);
  if (spec.has_keys(number)) {
    layer.linear(Part::kKey, "self_attn.k_proj", spec.hidden, key, spec.qkv_bias);
    if (!spec.has_full_heads(number) || !spec.full_heads->values_are_keys)
      layer.linear(Part::kValue, "self_attn.v_proj", spec.hidden, key, spec.qkv_bias);
    layer.rms_norm(Part::kKeyNorm, "self_attn.k_norm", width);
  }
  layer.linear(Part::kAttentionOut, "self_attn.o_proj", query, spec.hidden, spec.output_bias);
}

void lay_out_experts_beside(const ModelSpec& spec, LayerBuilder& layer) {
  const std::int64_t experts = spec.moe->experts, hidden = spec.hidden, wide = spec.moe->shared_ffn;
  layer.norm(Part::kSharedNorm, "pre_feedforward_layernorm", hidden);
  layer.linear(Part::kSharedGate, "mlp.gate_proj", hidden, wide);
  layer.linear(Part::kSharedUp, "mlp.up_proj", hidden, wide);
  layer.linear(Part::kSharedDown, "mlp.down_proj", wide, hidden);
  layer.norm(Part::kSharedOutNorm, "post_feedforward_layernorm_1", hidden);
  layer.numbers(Part::kRouterScale, "router.scale", {hidden}, Initial::kOne);
  layer.linear(Part::kRouter, "router.proj", hidden, experts);
  layer.numbers(Part::kExpertScale, "router.per_expert_scale", {experts}, Initial::kOne);
  layer.norm(Part::kExpertsNorm, "pre_feedforward_layernorm_2", hidden);
  lay_out_each_expert(spec, layer, {.experts = "experts"});
  layer.norm(Part::kExpertsOutNorm, "post_feedforward_layernorm_2", hidden);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  layer.norm(Part::kMixerNorm, "input_layernorm", spec.hidden);
  lay_out_attention(spec, number, layer);
  layer.norm(Part::kMixerOutNorm, "post_attention_layernorm", spec.hidden);
  if (spec.is_moe(number)) {
    lay_out_experts_beside(spec, layer);
  } else {
    layer.norm(Part::kFeedNorm, "pre_feedforward_layernorm", spec.hidden);
    layer.linear(Part::kGate, "mlp.gate_proj", spec.hidden, spec.ffn_of(number));
    layer.linear(Part::kUp, "mlp.up_proj", spec.hidden, spec.ffn_of(number));
    layer.linear(Part::kDown, "mlp.down_proj", spec.ffn_of(number), spec.hidden);
  }
  layer.norm(Part::kFeedOutNorm, "post_feedforward_layernorm", spec.hidden);
  if (spec.layer_input > 0) {
    layer.linear(Part::kInputGate, "per_layer_input_gate", spec.hidden, spec.layer_input);
    layer.linear(Part::kInputUp, "per_layer_projection", spec.layer_input, spec.hidden);
    layer.norm(Part::kInputNorm, "post_per_layer_input_norm", spec.hidden);
  }
  layer.tensor(Part::kLayerScale, "layer_scalar",
               {.name = "layer_scalar", .shape = {1}, .trainable = false, .initial = Initial::kOne});
}

void lay_out_ends(const ModelSpec& spec, Layout& layout) {
  lay_out_llama_ends(spec, layout);
  if (spec.layer_input == 0) return;
  const std::int64_t all = std::int64_t{spec.layers} * spec.layer_input;
  const auto module = [&](const char* name) {
    layout.embeddings.push_back(layout.base + "." + name);
    return layout.embeddings.back() + ".weight";
  };
  auto& out = layout.embedding_parameters;
  const auto add = [&](const char* name, Part part, Shape shape, Initial initial = Initial::kNormal) {
    out.push_back({.name = module(name), .shape = shape, .role = role_of(part), .part = part, .initial = initial});
  };
  add("embed_tokens_per_layer", Part::kInputsTable, {spec.layer_input_rows, all});
  add("per_layer_model_projection", Part::kInputsProduct, {all, spec.hidden});
  out.back().matrix = true;
  add("per_layer_projection_norm", Part::kInputsNorm, {spec.layer_input}, Initial::kOne);
}

}  // namespace gemma4_text

extern const Family kGemma4Text = {
    "gemma4_text",
    "Gemma4ForCausalLM",
    "Gemma 4, text: wider heads in full-attention layers, shared keys, layer inputs, experts beside an MLP",
    gemma4_text::read,
    gemma4_text::lay_out_layer,
    kNoTensorPlan,
    gemma4_text::lay_out_ends};

}  // namespace automodel::arch
