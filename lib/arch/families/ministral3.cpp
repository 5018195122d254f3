#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace ministral3 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 262144;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 1'000'000.0;
  defaults.head_dim = 128;
  defaults.pad_token = 11;
  read_decoder(config, spec, defaults);
  read_uniform_window(config, spec, 0);
  read_query_growth(config, spec);
}

}  // namespace ministral3

extern const Family kMinistral3 = {
    "ministral3",     "Ministral3ForCausalLM", "Ministral 3: Mistral with YaRN, and queries scaled by position",
    ministral3::read, lay_out_llama,           divide_by_part};

}  // namespace automodel::arch
