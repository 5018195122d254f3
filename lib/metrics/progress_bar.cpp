#include "metrics/progress_bar.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"

namespace automodel::metrics {
namespace {

constexpr std::size_t kWindow = 51;  // step ends, enough for 50 steps
constexpr int kShortestBar = 10;
constexpr int kLongestBar = 40;

std::string bar_of(double share, int width) {
  const int full = std::clamp(static_cast<int>(share * width), 0, width);
  std::string bar(static_cast<std::size_t>(full), '=');
  if (full < width) bar += '>';
  bar.resize(static_cast<std::size_t>(width), ' ');
  return "[" + bar + "]";
}

}  // namespace

void StepPace::add(double timestamp) {
  ends_.push_back(timestamp);
  if (ends_.size() > kWindow) ends_.pop_front();
}

std::optional<double> StepPace::seconds_per_step() const {
  if (ends_.size() < 2) return std::nullopt;
  return (ends_.back() - ends_.front()) / static_cast<double>(ends_.size() - 1);
}

std::string progress_line(std::int64_t done, std::int64_t total, std::optional<double> pace, int columns) {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
  const std::string percent = fmt::format("{:3}%", static_cast<int>(share * 100));
  const std::string count = fmt::format("{}/{} {}", done, total, percent);
  const std::string left = pace ? format_seconds(*pace * static_cast<double>(total - done)) + " left" : "";
  const std::string speed = pace ? fmt::format(", {}/step", format_seconds(*pace)) : "";
  const int width = columns - 1;
  // From most to least detailed; `bar` fills the remaining width.
  struct Form {
    std::string before;
    bool bar;
    std::string after;
  };
  const std::vector<Form> forms = {{count + " ", true, " " + left + speed},
                                   {count + " ", true, " " + left},
                                   {count + " ", false, left},
                                   {percent + " ", false, left},
                                   {percent, false, ""}};
  for (const auto& [before, bar, after] : forms) {
    const int room = width - static_cast<int>(before.size() + after.size());
    const bool fits = room >= (bar ? kShortestBar + 2 : 0);
    if (fits) return fmt::format("{}{}{}", before, bar ? bar_of(share, std::min(room - 2, kLongestBar)) : "", after);
  }
  return "";
}

}  // namespace automodel::metrics
