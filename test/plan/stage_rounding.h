// The rounding of stage counts by its name in a recipe, for golden rows and suggestions.
#pragma once

#include <optional>
#include <string_view>

#include "plan/virtual_stages.h"

namespace automodel::plan {

/// "up" or "down"; empty for anything else.
inline std::optional<StageRounding> rounding_named(std::string_view word) {
  for (const auto rounding : {StageRounding::kUp, StageRounding::kDown})
    if (name_of(rounding) == word) return rounding;
  return std::nullopt;
}

}  // namespace automodel::plan
