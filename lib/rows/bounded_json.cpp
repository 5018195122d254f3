#include "rows/bounded_json.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rows/rows.h"

namespace automodel::rows {

using nlohmann::ordered_json;

std::optional<JsonProblem> parse_bounded(std::string_view text, ordered_json& out) {
  if (text.size() > kMostRowBytes)
    return JsonProblem{1, fmt::format("the row has {} bytes; at most {} are read", text.size(), kMostRowBytes)};
  bool deep = false, wide = false;
  std::array<std::size_t, kMostDepth + 2> keys{};  // of the open object at each depth
  // What is beyond a limit is not built: values are copied and compared by one call per level, and the parser looks for
  // every key among those before it.
  const auto watch = [&](int at, ordered_json::parse_event_t event, ordered_json&) {
    const auto depth = static_cast<std::size_t>(at);
    deep = deep || depth > kMostDepth;
    if (deep || wide) return false;
    if (event == ordered_json::parse_event_t::object_start) keys[depth + 1] = 0;
    wide = event == ordered_json::parse_event_t::key && ++keys[depth] > kMostColumns;
    return !wide;
  };
  try {
    out = ordered_json::parse(text, watch);
  } catch (const ordered_json::parse_error& error) {
    return JsonProblem{std::max<std::size_t>(error.byte, 1), "the line is not JSON"};
  } catch (const ordered_json::exception&) {
    return JsonProblem{1, "the line is not JSON"};
  }
  if (deep) return JsonProblem{1, "nested too deeply"};
  if (wide) return JsonProblem{1, fmt::format("an object has more than {} keys", kMostColumns)};
  return std::nullopt;
}

ordered_json json_in_text(std::string_view text) {
  ordered_json out;
  if (parse_bounded(text, out)) return ordered_json(ordered_json::value_t::discarded);
  return out;
}

}  // namespace automodel::rows
