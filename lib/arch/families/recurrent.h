// Shared by families with recurrent mixers.
#pragma once

#include <string_view>

#include "arch/families/decoder.h"

namespace automodel::arch {

/// Sets each layer's mixer from layer_types or, if absent, attention in every full_attention_interval-th layer (default
/// `interval`) and `mixer` elsewhere.
void read_attention_interval(ConfigReader& config, ModelSpec& spec, Mixer mixer, int interval);

/// Reports a number of heads that is not a multiple of the number of groups.
void check_state(ConfigReader& config, const ModelSpec& spec, std::string_view heads_key, std::string_view groups_key);

/// Refuses an activation of the recurrent layers' convolutions other than SiLU.
void require_silu(ConfigReader& config, std::string_view key = "hidden_act");

/// The keys of Qwen3-Next's gated delta rule: linear_{num_key_heads,num_value_heads,key_head_dim,value_head_dim,
/// conv_kernel_dim}.
void read_gated_delta(ConfigReader& config, ModelSpec& spec);
/// The modules that both ways of storing the input projection share: convolution, decays, norm and output projection,
/// below "linear_attn".
void lay_out_gated_delta(const ModelSpec& spec, LayerBuilder& layer);

/// Config keys for the sizes of Mamba-2.
struct MambaKeys {
  std::string_view heads, head_dim, groups, state, taps, conv_bias;
  std::string_view in_bias, out_bias;
  std::string_view activation = "hidden_act";
};
inline constexpr MambaKeys kBambaKeys = {.heads = "mamba_n_heads",
                                         .head_dim = "mamba_d_head",
                                         .groups = "mamba_n_groups",
                                         .state = "mamba_d_state",
                                         .taps = "mamba_d_conv",
                                         .conv_bias = "mamba_conv_bias",
                                         .in_bias = "mamba_proj_bias",
                                         .out_bias = "mamba_proj_bias"};
struct MambaDefaults {
  int heads = 128, head_dim = 64, groups = 1, state = 256, taps = 4;
};
Recurrence& read_mamba(ConfigReader& config, ModelSpec& spec, const MambaKeys& keys, const MambaDefaults& defaults);
/// Reads time_step_limit: [least, most].
void read_step_limit(ConfigReader& config, ModelSpec& spec);
/// `module`.{in_proj,conv1d,A_log,D,dt_bias,norm,out_proj}.
void lay_out_mamba(const ModelSpec& spec, LayerBuilder& layer, std::string_view module);

}  // namespace automodel::arch
