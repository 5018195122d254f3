// JSON that strangers wrote: parsed within the limits of a row.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace automodel::rows {

struct JsonProblem {
  std::size_t byte;  ///< where, from 1
  std::string message;
};

/// Parses JSON of at most kMostRowBytes, nested at most kMostDepth deep, with at most kMostColumns keys in an object.
/// Returns what is wrong with it; `out` is then of no use.
std::optional<JsonProblem> parse_bounded(std::string_view text, nlohmann::ordered_json& out);

/// JSON that a cell or a member holds as text, by the same limits; discarded if it is none or beyond them.
nlohmann::ordered_json json_in_text(std::string_view text);

}  // namespace automodel::rows
