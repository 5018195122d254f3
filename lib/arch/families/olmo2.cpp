#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace olmo2 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.norm_eps = 1e-5;
  defaults.pad_token = 1;
  read_decoder(config, spec, defaults);
  spec.input_norms = false;
  spec.branch_norms = true;
  spec.head_norm = HeadNorm{.span = HeadNorm::Span::kAllHeads};
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kPostNames, lay_out_mlp);
}

}  // namespace olmo2

extern const Family kOlmo2 = {"olmo2", "Olmo2ForCausalLM", "OLMo 2: norms of block outputs, norms over all heads",
                              olmo2::read, olmo2::lay_out_layer};

}  // namespace automodel::arch
