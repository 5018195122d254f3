#include "arch/families/recurrent.h"

#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>

namespace automodel::arch {

void read_attention_interval(ConfigReader& config, ModelSpec& spec, Mixer mixer, int interval) {
  const std::array words = {MixerWord{"linear_attention", mixer}, MixerWord{"full_attention", Mixer::kAttention}};
  const int every = config.integer({"full_attention_interval"}, interval, 1, kMostLayers);
  if (read_mixers(config, spec, "layer_types", words)) return;
  for (int layer = 0; layer < spec.layers; ++layer)
    spec.mixers.push_back((layer + 1) % every == 0 ? Mixer::kAttention : mixer);
}

void check_state(ConfigReader& config, const ModelSpec& spec, std::string_view heads_key, std::string_view groups_key) {
  const auto& state = *spec.recurrence;
  if (!config.good({heads_key, groups_key}) || state.heads % state.groups == 0) return;
  config.refuse("indivisible", groups_key)
      .says("{} {} is not a multiple of {} {}", heads_key, state.heads, groups_key, state.groups)
      .hint("the keys of a group serve the same number of heads");
}

void require_silu(ConfigReader& config, std::string_view key) {
  if (const auto given = config.text({key}, "silu"); given != "silu" && given != "swish")
    config.bad_value(key, fmt::format("'{}' is '{}'", key, given), "convolutions of recurrent layers use silu");
}

void read_gated_delta(ConfigReader& config, ModelSpec& spec) {
  require_silu(config);
  auto& state = spec.recurrence.emplace();
  state.groups = config.integer({"linear_num_key_heads"}, 16, 1, kMostWidth);
  state.heads = config.integer({"linear_num_value_heads"}, 32, 1, kMostWidth);
  state.key_dim = config.integer({"linear_key_head_dim"}, 128, 1, kMostWidth);
  state.value_dim = config.integer({"linear_value_head_dim"}, 128, 1, kMostWidth);
  state.taps = config.integer({"linear_conv_kernel_dim"}, 4, 1, 8);
  state.norm_first = true;
  state.norm_eps = spec.norm_eps;
  check_state(config, spec, "linear_num_value_heads", "linear_num_key_heads");
}

void lay_out_gated_delta(const ModelSpec& spec, LayerBuilder& layer) {
  const auto& state = *spec.recurrence;
  constexpr double kMostRate = 16;
  layer.conv(Part::kStateConv, "linear_attn.conv1d", 2 * state.key_width() + state.value_width(), state.taps, false);
  layer.numbers(Part::kStateDecayBias, "linear_attn.dt_bias", {state.heads}, Initial::kOne);
  layer.numbers(Part::kStateDecayRate, "linear_attn.A_log", {state.heads}, Initial::kLogUniform, kMostRate);
  layer.tensor(Part::kStateNorm, "linear_attn.norm",
               {.name = "linear_attn.norm.weight", .shape = {state.value_dim}, .initial = Initial::kOne});
  layer.linear(Part::kStateOut, "linear_attn.out_proj", state.value_width(), spec.hidden);
}

Recurrence& read_mamba(ConfigReader& config, ModelSpec& spec, const MambaKeys& keys, const MambaDefaults& defaults) {
  require_silu(config, keys.activation);
  auto& state = spec.recurrence.emplace();
  state.heads = config.integer({keys.heads}, defaults.heads, 1, kMostWidth);
  state.value_dim = config.integer({keys.head_dim}, defaults.head_dim, 1, kMostWidth);
  state.groups = config.integer({keys.groups}, defaults.groups, 1, kMostWidth);
  state.key_dim = config.integer({keys.state}, defaults.state, 1, kMostWidth);
  state.taps = config.integer({keys.taps}, defaults.taps, 1, 8);
  state.conv_bias = config.boolean({keys.conv_bias}, true);
  state.in_bias = config.boolean({keys.in_bias}, false);
  state.out_bias = config.boolean({keys.out_bias}, false);
  state.norm_eps = spec.norm_eps;
  state.values_first = true;
  const auto inner = state.value_width(), keys_width = state.key_width();
  state.sections = {inner, inner, keys_width, keys_width, state.heads};
  check_state(config, spec, keys.heads, keys.groups);
  // Chunk sizes and the initialisation of time steps do not affect a pretrained model.
  config.ignore({"chunk_size", "mamba_chunk_size", "time_step_floor", "time_step_max", "time_step_min",
                 "time_step_rank", "residual_in_fp32", "rescale_prenorm_residual", "use_mamba_kernels",
                 "mamba_ssm_cache_dtype", "num_logits_to_keep", "mamba_expand", "expand"});
  return state;
}

void read_step_limit(ConfigReader& config, ModelSpec& spec) {
  const auto limit = config.numbers("time_step_limit");
  if (limit.empty()) return;
  if (limit.size() != 2 || limit[0] < 0 || limit[1] < limit[0])
    return config.bad_value("time_step_limit", "'time_step_limit' is not a range of time steps",
                            "it must be two numbers of at least 0, the minimum and the maximum");
  constexpr double kNoStep = 1e300;
  spec.recurrence->least_step = limit[0];
  spec.recurrence->most_step = limit[1] < kNoStep ? limit[1] : 0;
}

void lay_out_mamba(const ModelSpec& spec, LayerBuilder& layer, std::string_view module) {
  const auto& state = *spec.recurrence;
  const auto below = [&](std::string_view name) { return std::string(module) + "." + std::string(name); };
  const auto inner = state.value_width(), conv = inner + 2 * state.key_width();
  layer.linear(Part::kStateIn, below("in_proj"), spec.hidden, inner + conv + state.heads, state.in_bias);
  layer.conv(Part::kStateConv, below("conv1d"), conv, state.taps, state.conv_bias);
  layer.numbers(Part::kStateDecayBias, below("dt_bias"), {state.heads}, Initial::kStepBias);
  layer.numbers(Part::kStateDecayRate, below("A_log"), {state.heads}, Initial::kLogCount);
  layer.numbers(Part::kStateSkip, below("D"), {state.heads}, Initial::kOne);
  if (state.norm)
    layer.tensor(Part::kStateNorm, below("norm"),
                 {.name = below("norm.weight"), .shape = {inner}, .initial = Initial::kOne});
  layer.linear(Part::kStateOut, below("out_proj"), inner, spec.hidden, state.out_bias);
}

}  // namespace automodel::arch
