#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/rope_config.h"

namespace automodel::arch {
namespace minimax_m2 {

/// Published configs have rotary_dim; where there is a partial_rotary_factor, transformers does not read it.
void read_rotary(ConfigReader& config, ModelSpec& spec) {
  const int turned = config.integer({"rotary_dim"}, spec.rope.rotary_dim, 2, kMostWidth);
  if (turned > spec.head_dim)
    config.bad_value("rotary_dim",
                     fmt::format("'rotary_dim' is {}, and a head has {} dimensions", turned, spec.head_dim),
                     "RoPE cannot rotate more");
  else if (has_partial_rotary(config) && turned != spec.rope.rotary_dim)
    config.bad_value("rotary_dim",
                     fmt::format("'rotary_dim' is {}, and 'partial_rotary_factor' rotates {} dimensions", turned,
                                 spec.rope.rotary_dim),
                     "leave one of them out");
  spec.rope.rotary_dim = turned;
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 196608;
  defaults.rope_theta = 5'000'000.0;
  defaults.partial_rotary = 1.0;
  defaults.kv_heads = 8;
  defaults.head_dim = 128;
  read_decoder(config, spec, defaults);
  read_rotary(config, spec);
  if (config.boolean({"use_qk_norm"}, true)) spec.head_norm = HeadNorm{.span = HeadNorm::Span::kAllHeads};
  auto& moe = read_experts(config, spec, {"num_local_experts", "num_experts"}, 0.001);
  moe.ffn = spec.ffn;
  moe.score = RouterScore::kSigmoid;
  moe.correction_bias = true;
  if (config.number({"router_jitter_noise"}, 0.0) != 0)
    config.bad_value("router_jitter_noise", "router jitter is not supported", "use router_jitter_noise: 0.0");
  spec.mtp_layers = config.boolean({"use_mtp"}, false) ? config.integer({"num_mtp_modules"}, 0, 0, kMostLayers) : 0;
  config.ignore({"attn_type_list", "qk_norm_type", "scoring_func", "use_routing_bias", "shared_intermediate_size",
                 "shared_moe_mode", "mtp_transformer_layers", "layernorm_full_attention_beta",
                 "layernorm_linear_attention_beta", "layernorm_mlp_beta", "max_model_len", "swa_rope_theta",
                 "num_mtp_modules"});
  check_experts(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {},
                 [](const ModelSpec& of, LayerBuilder& to) { lay_out_experts(of, to, kMixtralExperts); });
}

}  // namespace minimax_m2

extern const Family kMiniMaxM2 = {"minimax_m2", "MiniMaxM2ForCausalLM",
                                  "MiniMax-M2: norms over all heads, many small experts with a sigmoid router",
                                  minimax_m2::read, minimax_m2::lay_out_layer};

}  // namespace automodel::arch
