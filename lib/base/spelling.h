// "Did you mean": the known word nearest to an unknown one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace automodel {

/// Bytes inserted, removed, replaced, or swapped in pairs; `limit + 1` as soon as there must be more than `limit`.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit = 64);

/// The word in `known` nearest to `word`, ignoring case and `-` versus `_`; empty if none is close enough to be a
/// plausible typo. Abbreviations (lr for learning_rate, or the reverse), then beginnings of a word, beat any distance.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& known);

/// "did you mean 'x'?" or, if nothing is near, "known: a, b, c" (at most `most` of them); empty for an empty list.
std::string suggestion(std::string_view word, const std::vector<std::string_view>& known, std::size_t most = 24);

/// "a, b, c".
std::string join(const std::vector<std::string_view>& words, std::string_view separator = ", ");

}  // namespace automodel
