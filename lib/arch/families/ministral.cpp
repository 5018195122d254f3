#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace ministral {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 131072;
  read_decoder(config, spec, defaults);
  read_uniform_window(config, spec, 4096);
}

}  // namespace ministral

extern const Family kMinistral = {
    "ministral",     "MinistralForCausalLM", "Ministral 8B: Mistral with a window in some layers",
    ministral::read, lay_out_llama,          divide_by_part};

}  // namespace automodel::arch
