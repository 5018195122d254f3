// "Did you mean": the known word nearest to an unknown one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace automodel {

/// Levenshtein distance in bytes, capped: returns `limit + 1` as soon as the distance must exceed `limit`.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit = 64);

/// The word in `known` nearest to `word`, ignoring case and `-` versus `_`; empty if none is close enough to be a
/// plausible typo. An abbreviation (lr for learning_rate, or the reverse) beats any edit distance.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& known);

/// "did you mean 'x'?" or, if nothing is near, "known: a, b, c" (at most `most` of them); empty for an empty list.
std::string suggestion(std::string_view word, const std::vector<std::string_view>& known, std::size_t most = 24);

/// "a, b, c".
std::string join(const std::vector<std::string_view>& words, std::string_view separator = ", ");

}  // namespace automodel
