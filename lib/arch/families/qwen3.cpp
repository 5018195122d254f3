#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace qwen3 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 32768;
  defaults.head_dim = 128;
  read_decoder(config, spec, defaults);
  read_upper_window(config, spec);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.head_norm.emplace();
}

}  // namespace qwen3

extern const Family kQwen3 = {"qwen3",     "Qwen3ForCausalLM", "Qwen 3: Llama with norms of the query and key heads",
                              qwen3::read, lay_out_llama,      divide_by_part};

}  // namespace automodel::arch
