// Mixers with a recurrent state (ModelSpec::recurrence), and short convolutions.
#pragma once

#include <memory>

#include "model/blocks.h"

namespace automodel::model {

/// Added to the squared lengths by which delta rules normalise queries and keys.
inline constexpr double kLengthEps = 1e-6;

std::unique_ptr<Block> make_gated_delta(const BlockContext& context, int layer);
std::unique_ptr<Block> make_channel_delta(const BlockContext& context, int layer);
std::unique_ptr<Block> make_gated_conv(const BlockContext& context, int layer);
std::unique_ptr<Block> make_mamba(const BlockContext& context, int layer);
/// Mamba-2 and attention on the same input; their outputs are added.
std::unique_ptr<Block> make_mamba_and_attention(const BlockContext& context, int layer);

}  // namespace automodel::model
