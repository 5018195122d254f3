#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace olmoe {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 4096;
  defaults.norm_eps = 1e-5;
  defaults.pad_token = 1;
  read_decoder(config, spec, defaults);
  spec.head_norm = HeadNorm{.span = HeadNorm::Span::kAllHeads};
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.qkv_clip = config.number({"clip_qkv"}, 0.0);
  auto& moe = read_experts(config, spec, {"num_experts", "num_local_experts"}, 0.01);
  moe.ffn = spec.ffn;
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, false);
  check_experts(config, spec);
}

}  // namespace olmoe

extern const Family kOlmoe = {"olmoe", "OlmoeForCausalLM", "OLMoE: norms over all heads, experts", olmoe::read,
                              lay_out_llama};

}  // namespace automodel::arch
