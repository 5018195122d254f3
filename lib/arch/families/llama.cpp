#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace llama {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {});
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
}

}  // namespace llama

extern const Family kLlama = {"llama",     "LlamaForCausalLM", "Llama 1 to 3 and models of the same architecture",
                              llama::read, lay_out_llama,      divide_by_part};

}  // namespace automodel::arch
