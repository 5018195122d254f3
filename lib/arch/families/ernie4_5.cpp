#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace ernie4_5 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 500'000.0;
  defaults.head_dim = 128;
  defaults.tied = true;
  defaults.pad_token = 0;
  read_decoder(config, spec, defaults);
  spec.rope.interleaved = true;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = config.boolean({"use_bias"}, false);
}

}  // namespace ernie4_5

extern const Family kErnie45 = {
    "ernie4_5",     "Ernie4_5ForCausalLM", "ERNIE 4.5, dense: Llama with RoPE on adjacent pairs",
    ernie4_5::read, lay_out_llama,         divide_by_part};

}  // namespace automodel::arch
