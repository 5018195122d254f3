#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 150000.0;
  defaults.head_dim = 64;
  read_decoder(config, spec, defaults);
  spec.norm_scale = NormScale::kInFloat;
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, true);
  spec.attention_sinks = true;
  spec.sliding_window = config.integer({"sliding_window"}, 128, 1, kMostPositions);
  read_layer_attention(config, spec, [](int layer) { return layer % 2 == 0; });
  auto& moe = read_experts(config, spec, {"num_local_experts", "num_experts"}, 0.9);
  moe.ffn = spec.ffn;
  moe.router = RouterKind::kTopKSoftmax;
  moe.bias = true;
  moe.swiglu_alpha = config.number({"swiglu_alpha"}, 1.702);
  moe.swiglu_limit = config.number({"swiglu_limit"}, 7.0);
  config.pass_over({"experts_per_token", "initial_context_length"});
  check_experts(config, spec);
}

/// Experts are fused and transposed on disk, gate and up interleaved along the last dimension.
void lay_out_layer(const ModelSpec& spec, bool /*moe*/, LayerBuilder& layer) {
  const std::int64_t experts = spec.moe->experts;
  const std::int64_t hidden = spec.hidden;
  const std::int64_t ffn = spec.ffn;
  layer.norm("input_layernorm", hidden);
  lay_out_attention(spec, layer);
  layer.norm("post_attention_layernorm", hidden);
  layer.linear("mlp.router", hidden, experts, true, Role::kRouter);
  layer.matrix("mlp.experts.gate_up_proj", {experts, hidden, 2 * ffn}, Role::kExpert);
  layer.tensor("mlp.experts.gate_up_proj_bias", {experts, 2 * ffn}, Role::kExpert);
  layer.matrix("mlp.experts.down_proj", {experts, ffn, hidden}, Role::kExpert);
  layer.tensor("mlp.experts.down_proj_bias", {experts, hidden}, Role::kExpert);
}

}  // namespace

extern const Family kGptOss = {"gpt_oss", "GptOssForCausalLM", "gpt-oss: experts, attention sinks, alternating window",
                               read, lay_out_layer};

}  // namespace automodel::arch
