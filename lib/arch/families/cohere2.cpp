#include "arch/families/cohere_blocks.h"
#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace cohere2 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.head_dim = 128;
  read_cohere(config, spec, defaults);
  read_pattern_window(config, spec, 4096, 4);
  for (int i = 0; i < spec.layers; ++i) spec.rope_layers.push_back(spec.slides(i));
}

}  // namespace cohere2

extern const Family kCohere2 = {
    "cohere2",     "Cohere2ForCausalLM", "Command-R7B, Command-A: Cohere with windows, and RoPE only there",
    cohere2::read, lay_out_cohere,       divide_by_part};

}  // namespace automodel::arch
