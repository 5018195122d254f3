#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace glm {

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
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, lay_out_joined_mlp);
}

}  // namespace glm

extern const Family kGlm = {"glm", "GlmForCausalLM",
                            "GLM-4-9B: joined gate and up, RoPE on adjacent pairs of half the dimensions", glm::read,
                            glm::lay_out_layer};

}  // namespace automodel::arch
