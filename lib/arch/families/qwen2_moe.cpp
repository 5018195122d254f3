#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"

namespace automodel::arch {
namespace qwen2_moe {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 32768;
  read_decoder(config, spec, defaults);
  read_upper_window(config, spec);
  spec.qkv_bias = config.boolean({"qkv_bias"}, true);
  auto& moe = read_experts(config, spec, {"num_experts"}, 0.001);
  moe.ffn = config.integer({"moe_intermediate_size"}, 1408, 1, kMostWidth);
  moe.shared_ffn = config.integer({"shared_expert_intermediate_size"}, 5632, 1, kMostWidth);
  moe.shared_switch = true;
  moe.normalize_top_k = config.boolean({"norm_topk_prob"}, false);
  read_sparse_steps(config, spec);
  check_experts(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  const auto experts = [](const ModelSpec& of, LayerBuilder& to) {
    lay_out_experts(of, to, {.shared = "mlp.shared_expert", .shared_switch = "mlp.shared_expert_gate"});
  };
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(experts) : LayOut(lay_out_mlp));
}

}  // namespace qwen2_moe

extern const Family kQwen2Moe = {"qwen2_moe", "Qwen2MoeForCausalLM",
                                 "Qwen 1.5 and 2 with experts and a gated shared one", qwen2_moe::read,
                                 qwen2_moe::lay_out_layer};

}  // namespace automodel::arch
