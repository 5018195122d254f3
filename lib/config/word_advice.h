// Suggestions for a word that a key does not accept.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace automodel::config {

/// Suggests the nearest of `names`, or lists all. Dotted component names share long prefixes, so only the last part is
/// compared and the list uses the short names.
std::string word_advice(const std::string& given, const std::vector<std::string_view>& names);

}  // namespace automodel::config
