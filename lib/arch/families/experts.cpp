#include "arch/families/experts.h"

#include <fmt/format.h>

#include "arch/families/decoder.h"

namespace automodel::arch {

MixtureOfExperts& read_experts(ConfigReader& config, ModelSpec& spec, Keys count_keys, double aux_loss_coefficient) {
  auto& moe = spec.moe.emplace();
  moe.experts = config.required(count_keys, 1, kMostLayers);
  moe.top_k = config.required({"num_experts_per_tok"}, 1, kMostLayers);
  moe.aux_loss_coefficient = config.number({"router_aux_loss_coef"}, aux_loss_coefficient);
  moe.output_router_logits = config.boolean({"output_router_logits"}, false);
  spec.moe_layers.assign(static_cast<std::size_t>(spec.layers), true);
  return moe;
}

void check_experts(ConfigReader& config, const ModelSpec& spec) {
  const auto& moe = *spec.moe;
  if (!config.good({"num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok"})) return;
  if (moe.top_k > moe.experts)
    config.bad_value("num_experts_per_tok", fmt::format("{} of {} experts for each token", moe.top_k, moe.experts),
                     fmt::format("it must be at most {}", moe.experts));
  if (moe.experts % moe.groups != 0)
    config.refuse("indivisible", "n_group", fmt::format("{} experts in {} groups", moe.experts, moe.groups),
                  "the number of groups must divide the number of experts");
  if (moe.top_groups > moe.groups)
    config.bad_value("topk_group", fmt::format("{} of {} groups for each token", moe.top_groups, moe.groups),
                     fmt::format("it must be at most {}", moe.groups));
}

void lay_out_experts(const ModelSpec& spec, LayerBuilder& layer) {
  const auto& moe = *spec.moe;
  layer.linear("mlp.gate", spec.hidden, moe.experts, moe.bias, Role::kRouter);
  if (moe.correction_bias) layer.tensor("mlp.gate.e_score_correction_bias", {moe.experts}, Role::kRouter, false);
  layer.copies(moe.experts);
  lay_out_mlp(layer, "mlp.experts.{}", spec.hidden, moe.ffn, false, Role::kExpert);
  layer.copies(1);
  if (moe.shared_experts > 0)
    lay_out_mlp(layer, "mlp.shared_experts", spec.hidden, moe.shared_experts * moe.ffn, false, Role::kSharedExpert);
}

}  // namespace automodel::arch
