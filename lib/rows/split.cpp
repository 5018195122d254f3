#include "rows/split.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

namespace automodel::rows {
namespace {

bool is_name(std::string_view text) {
  bool open = true;  // at the start of a word
  for (const char c : text) {
    const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0;
    if (!word && (c != '.' || open)) return false;
    open = !word;
  }
  return !open;
}

/// A bound such as "-1_000%"; empty text leaves `out` unset. False if the text is not a number.
bool read_bound(std::string_view text, std::optional<std::int64_t>& out, bool& percent) {
  if (text.empty()) return true;
  if (text.ends_with('%')) {
    percent = true;
    text.remove_suffix(1);
  }
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  std::int64_t value = 0;
  if (text.empty() || text.front() == '_' || text.back() == '_') return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && text[i - 1] != '_') continue;
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0 || value > 100'000'000'000'000) return false;
    value = value * 10 + (text[i] - '0');
  }
  out = negative ? -value : value;
  return true;
}

/// Reads one part of a split string into `out`; returns the problem, or "".
std::string read_part(std::string_view text, SplitPart& out) {
  const std::string unknown = fmt::format("'{}' is not a split", text);
  const std::size_t bracket = text.find('[');
  out.name = text.substr(0, bracket);
  if (!is_name(out.name)) return unknown;
  if (bracket == std::string_view::npos) return "";
  std::string_view rest = text.substr(bracket + 1);
  const std::size_t end = rest.find(']');
  if (end == std::string_view::npos) return unknown;
  const std::string_view bounds = rest.substr(0, end), behind = rest.substr(end + 1);
  const std::size_t colon = bounds.find(':');
  if (colon == std::string_view::npos || bounds.find(':', colon + 1) != std::string_view::npos) return unknown;
  if (!read_bound(bounds.substr(0, colon), out.from, out.percent) ||
      !read_bound(bounds.substr(colon + 1), out.to, out.percent))
    return unknown;
  if (behind == "(pct1_dropremainder)")
    out.rounding = SplitPart::Rounding::kDropRemainder;
  else if (!behind.empty() && behind != "(closest)")
    return unknown;
  if (!behind.empty() && !out.percent) return fmt::format("'{}' rounds, but has no percent", text);
  for (const auto& bound : {out.from, out.to})
    if (out.percent && bound && std::abs(*bound) > 100) return fmt::format("'{}' is beyond 100 %", text);
  return "";
}

}  // namespace

SplitText parse_split(std::string_view text) {
  SplitText out;
  for (std::size_t at = 0; out.problem.empty();) {
    const std::size_t plus = std::min(text.find('+', at), text.size());
    out.problem = read_part(text.substr(at, plus - at), out.parts.emplace_back());
    if (plus == text.size()) break;
    at = plus + 1;
  }
  return out;
}

RowRange range_of(const SplitPart& part, std::int64_t count, std::string& problem) {
  if (part.percent && part.rounding == SplitPart::Rounding::kDropRemainder && count < 100) {
    problem =
        fmt::format("pct1_dropremainder takes no row of a split of less than 100 rows ('{}' has {})", part.name, count);
    return {};
  }
  const auto rows = [&](std::int64_t bound) -> std::int64_t {
    if (!part.percent) return bound;
    if (part.rounding == SplitPart::Rounding::kDropRemainder) return bound * (count / 100);
    // Rounds half to even, as Python does: nearbyint in the default rounding mode.
    return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(count) * static_cast<double>(bound) / 100.0));
  };
  const auto place = [&](std::optional<std::int64_t> bound, std::int64_t otherwise) {
    if (!bound) return otherwise;
    const std::int64_t at = rows(*bound);
    return std::clamp<std::int64_t>(at < 0 ? at + count : at, 0, count);
  };
  return {place(part.from, 0), place(part.to, count)};
}

}  // namespace automodel::rows
