// What the families of Hunyuan share.
#pragma once

#include "arch/families/decoder.h"

namespace automodel::arch {

/// Norms of heads after RoPE; attention_bias; RoPE "dynamic" with `alpha`: a larger base, whatever `factor` says.
void read_hunyuan(ConfigReader& config, ModelSpec& spec);

inline constexpr LayerNames kHunyuanNames = {.query_norm = "self_attn.query_layernorm",
                                             .key_norm = "self_attn.key_layernorm"};

}  // namespace automodel::arch
