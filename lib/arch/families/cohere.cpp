#include "arch/families/cohere_blocks.h"
#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace cohere {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.rope_theta = 500'000.0;
  read_cohere(config, spec, defaults);
  if (config.boolean({"use_qk_norm"}, false))
    spec.head_norm = HeadNorm{.kind = NormKind::kLayerNorm, .span = HeadNorm::Span::kEachHead};
}

}  // namespace cohere

extern const Family kCohere = {
    "cohere",     "CohereForCausalLM", "Command-R, Aya 23: parallel blocks, LayerNorm without biases",
    cohere::read, lay_out_cohere,      divide_by_part};

}  // namespace automodel::arch
