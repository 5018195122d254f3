// Noise on token embeddings (NEFTune): random numbers that depend only on step, token and feature.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/low_rank.h"

namespace automodel::model {

/// Uniform numbers in [-magnitude, magnitude) for `tokens` (int64 [batch, tokens here], token numbers as in `draw`) and
/// all `width` features: [batch, tokens here, width].
at::Tensor embedding_noise(const ops::DropoutDraw& draw, const at::Tensor& tokens, std::int64_t width, double magnitude,
                           const at::TensorOptions& options);

}  // namespace automodel::model
