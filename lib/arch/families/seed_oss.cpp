#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace seed_oss {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 524288;
  defaults.head_dim = 128;
  defaults.pad_token = 1;
  read_decoder(config, spec, defaults);
  spec.qkv_bias = config.boolean({"attention_bias"}, true);
  spec.output_bias = config.boolean({"attention_out_bias"}, false);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
  spec.attention_dropout = config.number({"attention_dropout"}, 0.1);
  spec.residual_dropout = config.number({"residual_dropout"}, 0.1);
}

}  // namespace seed_oss

extern const Family kSeedOss = {
    "seed_oss",     "SeedOssForCausalLM", "Seed-OSS: Llama with biases of queries, keys and values",
    seed_oss::read, lay_out_llama,        divide_by_part};

}  // namespace automodel::arch
