#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace stablelm {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.norm_key = "layer_norm_eps";
  defaults.norm_eps = 1e-5;
  defaults.partial_rotary = 0.25;
  read_decoder(config, spec, defaults);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = true;
  spec.parallel_blocks = config.boolean({"use_parallel_residual"}, false);
  spec.qkv_bias = config.boolean({"use_qkv_bias"}, false);
  spec.residual_dropout = config.number({"hidden_dropout"}, 0.0);
  if (config.boolean({"qk_layernorm"}, false))
    spec.head_norm = HeadNorm{.kind = NormKind::kLayerNorm, .span = HeadNorm::Span::kEachHead};
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  LayerNames names = {.query_norm = "self_attn.q_layernorm.norms.{}", .key_norm = "self_attn.k_layernorm.norms.{}"};
  if (spec.parallel_blocks) names.feed_norm = "";
  lay_out_blocks(spec, layer, names, lay_out_mlp);
}

}  // namespace stablelm

extern const Family kStableLm = {"stablelm", "StableLmForCausalLM",
                                 "StableLM: LayerNorm, RoPE on a quarter of the dimensions, optionally parallel blocks",
                                 stablelm::read, stablelm::lay_out_layer};

}  // namespace automodel::arch
