// Suggestions for a word that a key does not accept.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace automodel::config {

/// Suggests the nearest of `names`, or lists all. Dotted component names share long prefixes, so only the last part is
/// compared and the list uses the short names.
std::string word_advice(const std::string& given, const std::vector<std::string_view>& names);

/// What to write instead of "lr:5e-3" where keys are expected; empty for texts without a colon.
std::string colon_advice(std::string_view text);

}  // namespace automodel::config
