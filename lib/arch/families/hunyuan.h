// Shared by the Hunyuan families.
#pragma once

#include "arch/families/decoder.h"

namespace automodel::arch {

/// Head norms after RoPE; attention_bias; "dynamic" RoPE with `alpha`, which means a larger base regardless of
/// `factor`.
void read_hunyuan(ConfigReader& config, ModelSpec& spec);

inline constexpr LayerNames kHunyuanNames = {.query_norm = "self_attn.query_layernorm",
                                             .key_norm = "self_attn.key_layernorm"};

}  // namespace automodel::arch
