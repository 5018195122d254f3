// One line of a JSON lines file as an object.
#pragma once

#include <optional>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "data/token_row.h"

namespace automodel::data {

/// Parses a row into `out`, by the limits of rows/rows.h. Returns what is wrong with the line.
std::optional<RowProblem> parse_line(std::string_view line, nlohmann::ordered_json& out);

}  // namespace automodel::data
