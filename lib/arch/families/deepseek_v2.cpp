#include <fmt/format.h>

#include "arch/families/decoder.h"
#include "arch/families/experts.h"
#include "arch/families/family.h"
#include "arch/families/latent.h"

namespace automodel::arch {
namespace deepseek_v2 {

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  read_latent_decoder(config, spec, defaults);
  spec.rope.interleaved = true;
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
  config.ignore({"ep_size", "aux_loss_alpha", "seq_aux", "norm_topk_prob", "scoring_func"});
  auto& moe = read_experts(config, spec, {"n_routed_experts", "num_local_experts"}, 0.0);
  moe.ffn = config.integer({"moe_intermediate_size"}, 1407, 1, kMostWidth);
  moe.shared_ffn = moe.ffn * config.integer({"n_shared_experts"}, 2, 0, 256);
  moe.shared_bias = spec.mlp_bias;
  moe.float_router = true;
  moe.normalize_top_k = false;  // regardless of norm_topk_prob
  moe.scaling = config.number({"routed_scaling_factor"}, 1.0);
  const auto method = config.text({"topk_method"}, "greedy");
  const int groups = config.integer({"n_group"}, 1, 1, kMostLayers);
  const int best = config.integer({"topk_group"}, 1, 1, kMostLayers);
  if (method == "group_limited_greedy") {
    moe.groups = groups;
    moe.top_groups = best;
    moe.group_score = GroupScore::kBest;
  } else if (method != "greedy") {
    config.bad_value("topk_method", fmt::format("'topk_method' is '{}'", method),
                     "known: greedy, group_limited_greedy");
  }
  leave_dense(spec, config.integer({"first_k_dense_replace"}, 0, 0, kMostLayers));
  check_experts(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int number, LayerBuilder& layer) {
  lay_out_blocks(spec, layer, {}, spec.is_moe(number) ? LayOut(lay_out_experts) : LayOut(lay_out_mlp),
                 lay_out_latent_attention);
}

}  // namespace deepseek_v2

extern const Family kDeepseekV2 = {"deepseek_v2",
                                   "DeepseekV2ForCausalLM",
                                   "DeepSeek V2 and Coder-V2: latent attention, experts with shared ones",
                                   deepseek_v2::read,
                                   deepseek_v2::lay_out_layer,
                                   divide_by_part};

}  // namespace automodel::arch
