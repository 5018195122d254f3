#include "data/json_line.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace automodel::data {

using nlohmann::ordered_json;

std::optional<RowProblem> parse_line(std::string_view line, ordered_json& out) {
  constexpr int kMaxDepth = 32;
  bool deep = false;
  const auto watch = [&](int depth, ordered_json::parse_event_t, ordered_json&) {
    deep = deep || depth > kMaxDepth;
    return !deep;
  };
  try {
    out = ordered_json::parse(line, watch);
  } catch (const ordered_json::parse_error& error) {
    return RowProblem{std::max<std::size_t>(error.byte, 1), "the line is not JSON"};
  } catch (const ordered_json::exception&) {
    return RowProblem{1, "the line is not JSON"};
  }
  if (deep) return RowProblem{1, "nested too deeply"};
  if (!out.is_object()) return RowProblem{1, "a row is a JSON object"};
  return std::nullopt;
}

}  // namespace automodel::data
