#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "arch/families/family.h"
#include "arch/families/recurrent.h"

namespace automodel::arch {
namespace falcon_h1 {

void read_scales(ConfigReader& config, ModelSpec& spec) {
  auto& scales = spec.scales;
  scales.attention_in = config.number({"attention_in_multiplier"}, 1.0);
  scales.attention_out = config.number({"attention_out_multiplier"}, 1.0);
  scales.state_in = config.number({"ssm_in_multiplier"}, 1.0);
  scales.state_out = config.number({"ssm_out_multiplier"}, 1.0);
  spec.embedding_scale = config.number({"embedding_multiplier"}, 1.0);
  spec.logit_scale = config.number({"lm_head_multiplier"}, 1.0);
  // Scaling the keys is the same as scaling the scores.
  spec.attention_scale = config.number({"key_multiplier"}, 1.0) / std::sqrt(spec.head_dim);
  if (const auto state = config.numbers("ssm_multipliers"); state.size() == scales.state.size())
    std::copy(state.begin(), state.end(), scales.state.begin());
  else if (!state.empty())
    config.bad_value("ssm_multipliers", fmt::format("'ssm_multipliers' has {} numbers", state.size()),
                     "it needs five: of the gate, the values, B, C and the time steps");
  if (const auto mlp = config.numbers("mlp_multipliers"); mlp.size() == 2) {
    scales.gate = mlp[0];
    scales.mlp_out = mlp[1];
  } else if (!mlp.empty()) {
    config.bad_value("mlp_multipliers", fmt::format("'mlp_multipliers' has {} numbers", mlp.size()),
                     "it needs two: of the gate and of the result");
  }
}

void read(ConfigReader& config, ModelSpec& spec) {
  DecoderDefaults defaults;
  defaults.max_positions = 8192;
  defaults.norm_eps = 1e-5;
  read_decoder(config, spec, defaults);
  spec.mlp_bias = config.boolean({"mlp_bias"}, false);
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  auto keys = kBambaKeys;
  keys.out_bias = "projectors_bias";
  auto& state = read_mamba(config, spec, keys, {});
  const int inner =
      config.integer({"mamba_d_ssm"}, config.integer({"mamba_expand"}, 2, 1, 1024) * spec.hidden, 1, kMostWidth);
  if (config.good({"mamba_d_ssm", "mamba_n_heads", "mamba_d_head"}) && inner != state.value_width())
    config.bad_value("mamba_d_head", fmt::format("{} heads of {} are not {} wide", state.heads, state.value_dim, inner),
                     "mamba_n_heads times mamba_d_head is mamba_d_ssm, or mamba_expand times hidden_size");
  state.norm = config.boolean({"mamba_rms_norm"}, false);
  state.norm_first = config.boolean({"mamba_norm_before_gate"}, true);
  read_step_limit(config, spec);
  config.ignore({"attn_layer_indices", "mamba_use_mlp"});
  spec.mixers.assign(static_cast<std::size_t>(spec.layers), Mixer::kMambaAndAttention);
  read_scales(config, spec);
}

void lay_out_layer(const ModelSpec& spec, int /*number*/, LayerBuilder& layer) {
  lay_out_blocks(
      spec, layer, {.feed_norm = "pre_ff_layernorm"},
      [](const ModelSpec& of, LayerBuilder& to) { lay_out_mlp(of, to, "feed_forward"); },
      [](const ModelSpec& of, LayerBuilder& to) {
        lay_out_mamba(of, to, "mamba");
        lay_out_attention(of, to);
      });
}

void lay_out_names(const ModelSpec& spec, Layout& layout) {
  lay_out_ends(spec, layout, {.norm = "final_layernorm"});
}

}  // namespace falcon_h1

extern const Family kFalconH1 = {"falcon_h1",
                                 "FalconH1ForCausalLM",
                                 "Falcon-H1: Mamba-2 and attention side by side, multipliers on every branch",
                                 falcon_h1::read,
                                 falcon_h1::lay_out_layer,
                                 kNoTensorPlan,
                                 falcon_h1::lay_out_names};

}  // namespace automodel::arch
