// What to say about a word that a key does not take.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace automodel::config {

/// The nearest of `names`, or all of them. Dotted names of components are long and alike at the front: what counts is
/// their last part, and all are listed by their short names.
std::string word_advice(const std::string& given, const std::vector<std::string_view>& names);

}  // namespace automodel::config
