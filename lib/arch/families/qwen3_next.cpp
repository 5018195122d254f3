#include "arch/families/qwen3_next.h"

#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {

void read_gated_decoder(ConfigReader& config, ModelSpec& spec, int kv_heads) {
  DecoderDefaults defaults;
  defaults.max_positions = 32768;
  defaults.head_dim = 256;
  defaults.heads = 16;
  defaults.kv_heads = kv_heads;
  defaults.partial_rotary = 0.25;
  defaults.ffn_times_hidden = 4;
  read_decoder(config, spec, defaults);
  spec.norm_scale = NormScale::kOnePlusInFloat;
  spec.head_norm.emplace();
  spec.attention_gate = config.boolean({"attn_output_gate"}, true);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  read_gated_delta(config, spec);
  read_attention_interval(config, spec, Mixer::kGatedDelta, 4);
  spec.mtp_layers = config.integer({"mtp_num_hidden_layers", "num_nextn_predict_layers"}, 0, 0, kMostLayers);
  config.ignore({"mamba_ssm_dtype", "mtp_use_dedicated_embeddings", "mlp_only_layers"});
}

void read_switched_experts(ConfigReader& config, ModelSpec& spec) {
  auto& moe = read_experts(config, spec, {"num_experts"}, 0.001);
  moe.ffn = config.integer({"moe_intermediate_size"}, 512, 1, kMostWidth);
  moe.shared_ffn = config.integer({"shared_expert_intermediate_size"}, 512, 1, kMostWidth);
  moe.shared_switch = true;
  check_experts(config, spec);
}

LayOut switched_experts() {
  return [](const ModelSpec& of, LayerBuilder& to) {
    lay_out_experts(of, to, {.shared = "mlp.shared_expert", .shared_switch = "mlp.shared_expert_gate"});
  };
}

namespace qwen3_next {

void read(ConfigReader& config, ModelSpec& spec) {
  read_gated_decoder(config, spec, 2);
  read_switched_experts(config, spec);
  spec.moe->normalize_top_k = config.boolean({"norm_topk_prob"}, true);
  read_sparse_steps(config, spec);
}

/// Rows of both projections are grouped by key head: its queries, keys, values and gates in the first, its rates and
/// decays in the second.
void lay_out_joined(const ModelSpec& spec, LayerBuilder& layer) {
  const auto& state = *spec.recurrence;
  layer.linear(Part::kStateIn, "linear_attn.in_proj_qkvz", spec.hidden, 2 * (state.key_width() + state.value_width()));
  layer.linear(Part::kStateRate, "linear_attn.in_proj_ba", spec.hidden, std::int64_t{2} * state.heads);
  lay_out_gated_delta(spec, layer);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? switched_experts() : LayOut(lay_out_mlp),
                 spec.attends(number) ? nullptr : lay_out_joined);
}

}  // namespace qwen3_next

extern const Family kQwen3Next = {"qwen3_next", "Qwen3NextForCausalLM",
                                  "Qwen3-Next: gated delta rule and gated attention, experts with a gated shared one",
                                  qwen3_next::read, qwen3_next::lay_out_layer};

}  // namespace automodel::arch
