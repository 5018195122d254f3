#include "arch/families/kda.h"

#include <string>

namespace automodel::arch {

MixtureOfExperts& read_kimi_experts(ConfigReader& config, ModelSpec& spec) {
  auto& moe = read_experts(config, spec, {"num_experts"}, 0.0, {"num_experts_per_token", "num_experts_per_tok"});
  set_sigmoid_router(moe);
  moe.ffn = config.required({"moe_intermediate_size"}, 1, kMostWidth);
  moe.normalize_top_k = config.boolean({"moe_renormalize", "norm_topk_prob"}, true);
  moe.scaling = config.number({"routed_scaling_factor"}, 1.0);
  moe.groups = config.integer({"num_expert_group", "n_group"}, 1, 1, kMostLayers);
  moe.top_groups = config.integer({"topk_group"}, 1, 1, kMostLayers);
  moe.shared_ffn = moe.ffn * config.integer({"num_shared_experts"}, 1, 0, 256);
  read_mlp_layer_types(config, spec, 1);
  config.ignore({"moe_layer_freq", "moe_router_activation_func", "use_grouped_topk", "score_function",
                 "moe_router_enable_expert_bias", "router_dtype"});
  check_experts(config, spec);
  return moe;
}

void read_channel_delta(ConfigReader& config, ModelSpec& spec, int heads, int width, int taps) {
  require_silu(config);
  auto& state = spec.recurrence.emplace();
  state.heads = state.groups = config.integer({"linear_num_heads"}, heads, 1, kMostWidth);
  state.key_dim = state.value_dim = config.integer({"linear_head_dim"}, width, 1, kMostWidth);
  state.taps = config.integer({"linear_conv_kernel_dim", "short_conv_kernel_size"}, taps, 1, 8);
  state.norm_first = true;
  state.norm_eps = spec.norm_eps;
}

void lay_out_channel_delta(const ModelSpec& spec, LayerBuilder& layer, const ChannelDeltaNames& names) {
  const auto& state = *spec.recurrence;
  const auto below = [&](std::string_view name) { return std::string(names.module) + "." + std::string(name); };
  const auto width = state.value_width();
  const auto through = [&](Part first, std::string_view down, Part second, std::string_view up) {
    if (!down.empty()) layer.linear(first, below(down), spec.hidden, state.value_dim);
    layer.linear(second, below(up), down.empty() ? std::int64_t{spec.hidden} : state.value_dim, width);
  };
  layer.linear(Part::kStateQuery, below("q_proj"), spec.hidden, width);
  layer.linear(Part::kStateKey, below("k_proj"), spec.hidden, width);
  layer.linear(Part::kStateValue, below("v_proj"), spec.hidden, width);
  layer.conv(Part::kStateQueryConv, below("q_conv1d"), width, state.taps, false);
  layer.conv(Part::kStateKeyConv, below("k_conv1d"), width, state.taps, false);
  layer.conv(Part::kStateValueConv, below("v_conv1d"), width, state.taps, false);
  layer.linear(Part::kStateRate, below("b_proj"), spec.hidden, state.heads);
  through(Part::kStateDecayDown, names.decay_down, Part::kStateDecay, names.decay);
  constexpr double kMostRate = 16;
  layer.numbers(Part::kStateDecayRate, below("A_log"),
                names.rate_of_four ? Shape{1, 1, state.heads, 1} : Shape{state.heads}, Initial::kLogUniform, kMostRate);
  layer.numbers(Part::kStateDecayBias, below("dt_bias"), {width}, Initial::kStepBias);
  through(Part::kStateGateDown, names.gate_down, Part::kStateGate, names.gate);
  layer.tensor(Part::kStateNorm, below("o_norm"),
               {.name = below("o_norm.weight"), .shape = {state.value_dim}, .initial = Initial::kOne});
  layer.linear(Part::kStateOut, names.output, width, spec.hidden);
}

}  // namespace automodel::arch
