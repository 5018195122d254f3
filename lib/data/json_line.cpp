#include "data/json_line.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "rows/bounded_json.h"

namespace automodel::data {

using nlohmann::ordered_json;

std::optional<RowProblem> parse_line(std::string_view line, ordered_json& out) {
  if (auto problem = rows::parse_bounded(line, out)) return RowProblem{problem->byte, std::move(problem->message)};
  if (!out.is_object()) return RowProblem{1, "a row is a JSON object"};
  return std::nullopt;
}

}  // namespace automodel::data
