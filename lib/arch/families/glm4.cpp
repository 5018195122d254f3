#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace glm4 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.norm_eps = 1.5625e-07;
  defaults.kv_heads = 2;
  defaults.head_dim = 128;
  defaults.partial_rotary = 0.5;
  defaults.pad_token = 151329;
  read_decoder(config, spec, defaults);
  spec.rope.interleaved = true;
  spec.qkv_bias = config.boolean({"attention_bias"}, true);
  spec.branch_norms = true;
}

constexpr LayerNames kNames = {.mixer_out_norm = "post_self_attn_layernorm", .feed_out_norm = "post_mlp_layernorm"};

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kNames, lay_out_joined_mlp);
}

}  // namespace glm4

extern const Family kGlm4 = {"glm4", "Glm4ForCausalLM", "GLM-4-0414, GLM-Z1: GLM with norms of block outputs",
                             glm4::read, glm4::lay_out_layer};

}  // namespace automodel::arch
