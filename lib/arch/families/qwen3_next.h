// What Qwen3-Next and Qwen 3.5 share: layers of a gated delta rule, every fourth one attention with a gate.
#pragma once

#include "arch/families/recurrent.h"

namespace automodel::arch {

void read_gated_decoder(ConfigReader& config, ModelSpec& spec, int kv_heads);
/// Experts with a shared one that a number a token switches.
void read_switched_experts(ConfigReader& config, ModelSpec& spec);
LayOut switched_experts();

}  // namespace automodel::arch
