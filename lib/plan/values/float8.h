// Linear layers with 8-bit operands.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arch/modules.h"

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
  /// The 8-bit forms of weights, for results and for input gradients, are kept from a step's first microbatch to its
  /// last: 2 bytes per weight, where casting them again reads and writes 10 per microbatch.
  bool keep_weights = false;
  /// Whether weight gradients are 8-bit matmuls, too.
  bool has_weight_gradients() const { return recipe != Float8Recipe::kRowwiseWideWeight; }
  bool operator==(const Float8Plan&) const = default;
};

/// Whether a linear layer of this module and shape has 8-bit operands: the matmuls need multiples of 16.
inline bool takes_float8(const Float8Plan& plan, std::string_view module, const std::vector<std::int64_t>& shape) {
  const auto named = [&](const std::string& part) { return module.find(part) != std::string_view::npos; };
  return shape.size() == 2 && shape[0] % 16 == 0 && shape[1] % 16 == 0 && std::ranges::none_of(plan.left_out, named);
}
/// The same for a parameter inside the layers. Embeddings, routers, stacked experts and GPT-2's transposed layers are
/// left out.
inline bool takes_float8(const Float8Plan& plan, const arch::Parameter& parameter,
                         const std::vector<std::int64_t>& shape) {
  const auto role = parameter.role;
  const bool linear = role == arch::Role::kAttention || role == arch::Role::kMlp || role == arch::Role::kSharedExpert ||
                      role == arch::Role::kRecurrence;
  const bool whole = parameter.part != arch::Part::kOutDown;  // of which each group of heads has a part to itself
  return linear && whole && !parameter.transposed && takes_float8(plan, parameter.module(), shape);
}

}  // namespace automodel::plan
