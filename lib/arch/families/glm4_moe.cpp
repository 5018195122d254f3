#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace glm4_moe {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.norm_eps = 1e-5;
  defaults.kv_heads = 8;
  defaults.partial_rotary = 0.5;
  read_decoder(config, spec, defaults);
  spec.qkv_bias = config.boolean({"attention_bias"}, false);
  if (config.boolean({"use_qk_norm"}, false)) spec.head_norm.emplace();
  read_sigmoid_experts(config, spec, {.ffn = 1408});
  leave_dense(spec, config.integer({"first_k_dense_replace"}, 1, 0, kMostLayers));
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"}, 0, 0, kMostLayers);
}

}  // namespace glm4_moe

extern const Family kGlm4Moe = {
    "glm4_moe",     "Glm4MoeForCausalLM", "GLM-4.5 to 4.7: experts with a sigmoid router, RoPE on half the dimensions",
    glm4_moe::read, lay_out_llama,        divide_by_part};

}  // namespace automodel::arch
