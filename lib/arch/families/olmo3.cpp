#include "arch/families/decoder.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace olmo3 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.norm_eps = 1e-5;
  defaults.rope_theta = 500'000.0;
  defaults.pad_token = 1;
  read_decoder(config, spec, defaults);
  // A transformers 4 rope_scaling applies only to the full-attention layers.
  spec.sliding_rope = read_sliding_rope(config, spec, spec.rope.theta);
  spec.input_norms = false;
  spec.branch_norms = true;
  spec.head_norm = HeadNorm{.span = HeadNorm::Span::kAllHeads};
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  read_pattern_window(config, spec, 4096, 4);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kPostNames, lay_out_mlp);
}

}  // namespace olmo3

extern const Family kOlmo3 = {"olmo3", "Olmo3ForCausalLM", "OLMo 3: OLMo 2 with windows, and a RoPE of the full layers",
                              olmo3::read, olmo3::lay_out_layer};

}  // namespace automodel::arch
