// Shared by Qwen3-Next and Qwen 3.5: gated delta rule layers, with gated attention in every fourth layer.
#pragma once

#include "arch/families/recurrent.h"

namespace automodel::arch {

void read_gated_decoder(ConfigReader& config, ModelSpec& spec, int kv_heads);
/// Experts plus a shared expert gated by one scalar per token.
void read_switched_experts(ConfigReader& config, ModelSpec& spec);
LayOut switched_experts();

}  // namespace automodel::arch
