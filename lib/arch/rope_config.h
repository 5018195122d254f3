// RoPE as the config.json of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters) writes it.
#pragma once

#include <string_view>

#include "arch/config_reader.h"
#include "arch/rope.h"

namespace automodel::arch {

struct RopeDefaults {
  double theta = 10000.0;
  int head_dim = 0;       ///< dimensions before partial_rotary_factor
  int max_positions = 0;  ///< the context length from which missing numbers follow
  double partial = 1.0;   ///< share of the dimensions that are turned
};

/// `rope_scaling` where it is given, else `rope_parameters`. Where that mapping holds one mapping for each kind of
/// layer, `layer_type` ("full_attention", "sliding_attention") picks it. rope_theta and partial_rotary_factor stand in
/// the mapping or beside it. original_max_position_embeddings stands beside the mapping, in it, or is max_positions.
/// Problems: bad-value for unknown kinds and lists of the wrong length, missing-key for numbers a kind needs.
Rope read_rope(ConfigReader& config, const RopeDefaults& defaults, std::string_view layer_type = "full_attention");

}  // namespace automodel::arch
