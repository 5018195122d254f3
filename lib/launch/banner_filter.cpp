#include "launch/banner_filter.h"

#include <algorithm>
#include <array>
#include <utility>

namespace automodel::launch {
namespace {

constexpr std::size_t kRule = 20;     // dashes
constexpr std::size_t kMost = 16384;  // bytes of a banner
/// How the banners of Open MPI 4 and 5 begin. Others are warnings, which are passed on.
constexpr std::array<std::string_view, 8> kBegins = {"mpirun noticed",   "mpirun has exited",    "mpirun detected",
                                                     "Primary job",      "prterun noticed",      "prterun has exited",
                                                     "prterun detected", "MPI_ABORT was invoked"};

/// Of mpirun, once for each signal that this program sends until the ranks stop.
constexpr std::string_view kForwarding = "mpirun: Forwarding signal";

/// Whether the beginning of a line may become that one.
bool may_forward(std::string_view line) {
  return line.starts_with(kForwarding) || kForwarding.starts_with(line);
}

std::string_view content_of(std::string_view line) {
  const auto end = line.find_last_not_of(" \r\n");
  return end == std::string_view::npos ? std::string_view() : line.substr(0, end + 1);
}

bool only_dashes(std::string_view text) {
  return text.find_first_not_of('-') == std::string_view::npos;
}

bool is_rule(std::string_view line) {
  const auto content = content_of(line);
  return content.size() >= kRule && only_dashes(content);
}

}  // namespace

std::string BannerFilter::pass(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size() - 1) + 1;
    const auto piece = text.substr(0, end);
    text.remove_prefix(end);
    const bool whole = piece.ends_with('\n');
    if (streaming_) {
      out += piece;
      streaming_ = !whole;
      continue;
    }
    line_ += piece;
    if (whole) {
      take_line(out);
    } else if (block_.empty() && !only_dashes(line_) && !may_forward(line_)) {
      out += std::exchange(line_, {});
      streaming_ = true;
    }
  }
  return out;
}

void BannerFilter::take_line(std::string& out) {
  const auto line = std::exchange(line_, {});
  if (block_.empty()) {
    (is_rule(line) ? block_ : line.starts_with(kForwarding) ? banners_ : out) += line;
    return;
  }
  const bool first = std::ranges::count(block_, '\n') == 1;
  if (first && is_rule(line)) {  // the one before ended a warning; this one may begin a banner
    out += std::exchange(block_, line);
    return;
  }
  block_ += line;
  const bool known =
      !first || std::ranges::any_of(kBegins, [&](std::string_view each) { return line.starts_with(each); });
  if (!known || block_.size() > kMost)
    out += std::exchange(block_, {});
  else if (!first && is_rule(line))
    banners_ += std::exchange(block_, {});
}

std::string BannerFilter::rest() {
  return std::exchange(block_, {}) + std::exchange(line_, {});
}

}  // namespace automodel::launch
