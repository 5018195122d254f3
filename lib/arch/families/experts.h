// What the mixture-of-experts families share.
#pragma once

#include "arch/config_reader.h"
#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::arch {

/// Number of experts, experts a token (`num_experts_per_tok`, with this default) and the auxiliary loss. Every layer
/// becomes one with experts.
MixtureOfExperts& read_experts(ConfigReader& config, ModelSpec& spec, Keys count_keys, double aux_loss_coefficient);

/// Checks top_k and groups against the number of experts.
void check_experts(ConfigReader& config, const ModelSpec& spec);

/// mlp.gate, mlp.experts.N.{gate,up,down}_proj and, where the spec has them, mlp.shared_experts.
void lay_out_experts(const ModelSpec& spec, LayerBuilder& layer);

}  // namespace automodel::arch
