#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace olmo {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.pad_token = 1;
  read_decoder(config, spec, defaults);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_weight = false;
  spec.norm_eps = 1e-5;
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.qkv_clip = config.number({"clip_qkv"}, 0.0);
}

}  // namespace olmo

extern const Family kOlmo = {
    "olmo",     "OlmoForCausalLM", "OLMo 1: LayerNorm without parameters, clamped queries, keys and values",
    olmo::read, lay_out_llama,     divide_by_part};

}  // namespace automodel::arch
