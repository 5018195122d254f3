#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace mistral {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  read_decoder(config, spec, defaults);
  read_uniform_window(config, spec, 4096);
}

}  // namespace mistral

extern const Family kMistral = {
    "mistral",     "MistralForCausalLM", "Mistral: Llama without biases, with a sliding window",
    mistral::read, lay_out_llama,        divide_by_part};

}  // namespace automodel::arch
