#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/rope_config.h"

namespace automodel::arch {
namespace phimoe {

/// LongRoPE always uses short_factor here; cosines and sines have one scale for short and one for long sequences.
void read_scales(ConfigReader& config, Rope& rope) {
  if (rope.kind != RopeKind::kLongRope) return;
  auto scaling = rope_settings(config);
  rope.long_factor = rope.short_factor;
  // Elsewhere the one beside the mapping comes first.
  rope.original_max_positions =
      scaling->integer({"original_max_position_embeddings"}, rope.original_max_positions, 1, kMostPositions);
  rope.short_attention_factor = scaling->number("short_mscale");
  if (const auto factor = scaling->number("long_mscale")) rope.attention_factor = factor;
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 1'000'000.0;
  defaults.kv_heads = 8;
  read_decoder(config, spec, defaults);
  read_uniform_window(config, spec, 0);
  read_scales(config, spec.rope);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = true;
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.head_bias = config.boolean({"lm_head_bias"}, false);
  auto& moe = read_experts(config, spec, {"num_local_experts", "num_experts"}, 0.001);
  moe.ffn = spec.ffn;
  moe.score = RouterScore::kSparseMixer;
  moe.normalize_top_k = false;
  moe.jitter = config.number({"router_jitter_noise"}, 0.01);
  if (moe.top_k != 2 && config.good({"num_experts_per_tok"}))
    config.bad_value("num_experts_per_tok", fmt::format("{} experts per token", moe.top_k),
                     "the router of this family always chooses 2");
  if (config.number({"input_jitter_noise"}, 0.0) != 0)
    config.bad_value("input_jitter_noise", "noise on the experts' inputs is not supported",
                     "use input_jitter_noise: 0.0");
  spec.residual_dropout = config.number({"hidden_dropout"}, 0.0);
  check_experts(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {},
                 [](const ModelSpec& of, LayerBuilder& to) { lay_out_experts(of, to, kMixtralExperts); });
}

}  // namespace phimoe

extern const Family kPhimoe = {"phimoe", "PhimoeForCausalLM",
                               "Phi-3.5-MoE: LayerNorm, two experts chosen one after the other, LongRoPE", phimoe::read,
                               phimoe::lay_out_layer};

}  // namespace automodel::arch
