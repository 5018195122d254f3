// Linear layers with 8-bit operands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::plan {

/// How the three matmuls of a linear layer scale their operands (torchao's Float8LinearConfig.from_recipe_name).
enum class Float8Recipe : std::uint8_t {
  kTensorwise,         ///< one scale per tensor; output gradients in e5m2
  kRowwise,            ///< one scale, a power of two, per row of the left and per column of the right operand (each
                       ///< covers the reduction dimension); all in e4m3
  kRowwiseWideWeight,  ///< the same, but with one scale for the weight in input-gradient matmuls, and weight gradients
                       ///< are not 8-bit
};

struct Float8Plan {
  Float8Recipe recipe = Float8Recipe::kTensorwise;
  std::vector<std::string> left_out = {};  ///< modules whose name contains one of these keep their dtype
  bool emulate = false;                    ///< emulate even where the device has 8-bit matmuls
  bool operator==(const Float8Plan&) const = default;
};

}  // namespace automodel::plan
