#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace qwen2 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 32768;
  read_decoder(config, spec, defaults);
  read_upper_window(config, spec);
  spec.qkv_bias = true;
}

}  // namespace qwen2

extern const Family kQwen2 = {
    "qwen2",     "Qwen2ForCausalLM", "Qwen 2 and 2.5: Llama with biases of query, key and value",
    qwen2::read, lay_out_llama,      divide_by_part};

}  // namespace automodel::arch
