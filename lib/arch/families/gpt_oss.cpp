#include <string>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace gpt_oss {

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
  moe.score = RouterScore::kSoftmaxOfChosen;
  moe.paired_gates = true;
  moe.bias = true;
  moe.swiglu_alpha = config.number({"swiglu_alpha"}, 1.702);
  moe.swiglu_limit = config.number({"swiglu_limit"}, 7.0);
  config.ignore({"experts_per_token", "initial_context_length"});
  check_experts(config, spec);
}

/// Experts are fused and transposed on disk, gate and up interleaved along the last dimension.
void lay_out_fused_experts(const ModelSpec& spec, LayerBuilder& layer) {
  const std::int64_t experts = spec.moe->experts, hidden = spec.hidden, ffn = spec.ffn;
  const auto fused = [&](Part part, const std::string& name, std::int64_t in, std::int64_t out) {
    layer.tensor(part, name, {.name = name, .shape = {experts, in, out}, .matrix = true});
    layer.tensor(part, name, {.name = name + "_bias", .shape = {experts, out}, .initial = Initial::kZero});
  };
  layer.linear(Part::kRouter, "mlp.router", hidden, experts, true);
  fused(Part::kExpertGateUp, "mlp.experts.gate_up_proj", hidden, 2 * ffn);
  fused(Part::kExpertDown, "mlp.experts.down_proj", ffn, hidden);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, lay_out_fused_experts);
}

}  // namespace gpt_oss

// transformers 5 has rows for the ends only; here the heads are divided, as in transformers 4.
extern const Family kGptOss = {
    "gpt_oss",     "GptOssForCausalLM",    "gpt-oss: experts, attention sinks, alternating window",
    gpt_oss::read, gpt_oss::lay_out_layer, divide_by_part};

}  // namespace automodel::arch
