#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace qwen3_moe {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 32768;
  read_decoder(config, spec, defaults);
  read_upper_window(config, spec);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  spec.head_norm.emplace();
  auto& moe = read_experts(config, spec, {"num_experts", "num_local_experts"}, 0.001);
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, false);
  read_sparse_steps(config, spec);
  check_experts(config, spec);
}

}  // namespace qwen3_moe

extern const Family kQwen3Moe = {"qwen3_moe",     "Qwen3MoeForCausalLM", "Qwen 3 with experts",
                                 qwen3_moe::read, lay_out_llama,         divide_by_part};

}  // namespace automodel::arch
