#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace flex_olmo {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.rope_theta = 500'000.0;
  defaults.pad_token = 100277;
  read_decoder(config, spec, defaults);
  spec.input_norms = false;
  spec.branch_norms = true;
  spec.head_norm = HeadNorm{.span = HeadNorm::Span::kAllHeads};
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  auto& moe = read_experts(config, spec, {"num_experts", "num_local_experts"}, 0.01);
  moe.ffn = spec.ffn;
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, false);
  check_experts(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, kPostNames, lay_out_experts);
}

}  // namespace flex_olmo

extern const Family kFlexOlmo = {"flex_olmo", "FlexOlmoForCausalLM", "FlexOlmo: OLMo 2 with experts", flex_olmo::read,
                                 flex_olmo::lay_out_layer};

}  // namespace automodel::arch
