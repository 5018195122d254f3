// Reads RoPE settings from a config.json of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters).
#pragma once

#include <optional>
#include <string_view>

#include "arch/config_reader.h"
#include "arch/rope.h"

namespace automodel::arch {

struct RopeDefaults {
  double theta = 10000.0;
  int head_dim = 0;       ///< dimensions before partial_rotary_factor
  int max_positions = 0;  ///< context length, used to derive missing values
  /// Fraction of the dimensions that RoPE applies to if the config does not say; none: all, and the config cannot say
  /// otherwise, because transformers does not read partial_rotary_factor for every family.
  std::optional<double> partial = {};
  bool lists = false;  ///< rope_theta beside the mapping is a list, from which the family took `theta`
};

/// The mapping with RoPE's settings: `rope_scaling` if present, else `rope_parameters`.
std::optional<ConfigReader> rope_settings(ConfigReader& config);

/// Reads the RoPE of rope_settings(). If that mapping has one mapping per layer type,
/// `layer_type` ("full_attention", "sliding_attention") selects one. rope_theta and partial_rotary_factor may be in the
/// mapping, which takes precedence, or next to it. original_max_position_embeddings is taken from next to the mapping,
/// then from the mapping, then from max_positions. Reports bad-value for unknown kinds and lists of the wrong length,
/// missing-key for missing required values.
Rope read_rope(ConfigReader& config, const RopeDefaults& defaults, std::string_view layer_type = "full_attention");

/// Whether the config has a partial_rotary_factor, in rope_settings() or beside it.
bool has_partial_rotary(ConfigReader& config);

}  // namespace automodel::arch
