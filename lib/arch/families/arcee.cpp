#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace arcee {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.norm_eps = 1e-5;
  defaults.activation = "relu2";
  read_decoder(config, spec, defaults);
  spec.gated_mlp = false;
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
}

}  // namespace arcee

extern const Family kArcee = {"arcee",     "ArceeForCausalLM", "AFM: Llama with a plain MLP of squared ReLU",
                              arcee::read, lay_out_llama,      divide_by_part};

}  // namespace automodel::arch
