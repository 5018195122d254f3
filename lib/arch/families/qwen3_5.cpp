#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/qwen3_next.h"

namespace automodel::arch {
namespace qwen3_5 {

void read_common(ConfigReader& config, ModelSpec& spec, int kv_heads) {
  read_gated_decoder(config, spec, kv_heads);
  const auto& state = *spec.recurrence;
  spec.recurrence->sections = {state.key_width(), state.key_width(), state.value_width()};
}

void read_dense(ConfigReader& config, ModelSpec& spec) {
  read_common(config, spec, 4);
}

void read_moe(ConfigReader& config, ModelSpec& spec) {
  read_common(config, spec, 2);
  read_switched_experts(config, spec);
  config.ignore({"norm_topk_prob", "decoder_sparse_step"});  // weights always sum to 1; all layers have experts
}

void lay_out_apart(const ModelSpec& spec, LayerBuilder& layer) {
  const auto& state = *spec.recurrence;
  layer.linear(Part::kStateIn, "linear_attn.in_proj_qkv", spec.hidden, 2 * state.key_width() + state.value_width());
  layer.linear(Part::kStateGate, "linear_attn.in_proj_z", spec.hidden, state.value_width());
  layer.linear(Part::kStateRate, "linear_attn.in_proj_b", spec.hidden, state.heads);
  layer.linear(Part::kStateDecay, "linear_attn.in_proj_a", spec.hidden, state.heads);
  lay_out_gated_delta(spec, layer);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? switched_experts() : LayOut(lay_out_mlp),
                 spec.attends(number) ? nullptr : lay_out_apart);
}

}  // namespace qwen3_5

extern const Family kQwen35 = {"qwen3_5_text", "Qwen3_5ForCausalLM",
                               "Qwen 3.5, text: gated delta rule and gated attention, dense", qwen3_5::read_dense,
                               qwen3_5::lay_out_layer};
extern const Family kQwen35Moe = {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM",
                                  "Qwen 3.5 with experts, text: gated delta rule and gated attention",
                                  qwen3_5::read_moe, qwen3_5::lay_out_layer};

}  // namespace automodel::arch
