#include "arch/families/decoder.h"
#include "arch/families/family.h"
#include "arch/families/granite_scales.h"

namespace automodel::arch {
namespace granite {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {});
  read_granite_scales(config, spec);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
}

}  // namespace granite

extern const Family kGranite = {"granite",
                                "GraniteForCausalLM",
                                "Granite 3: Llama with multipliers on embeddings, residuals, scores and logits",
                                granite::read,
                                lay_out_llama,
                                divide_by_part};

}  // namespace automodel::arch
