// What happened to a run beside its steps: saves, restarts, steps that were left out, warnings. One JSON object a line
// in events.jsonl, in the order in which it happened; nothing is ever removed, also not what a resumed run does again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "metrics/append_file.h"

namespace automodel::metrics {

inline constexpr const char* kEventFile = "events.jsonl";

struct Event {
  std::string event = {};                 ///< "start", "saved", "restart", ...: docs/metrics.md has all
  std::optional<std::int64_t> step = {};  ///< that it happened in or after
  std::string message = {};               ///< for people
  /// Whatever else belongs to it, by name.
  std::vector<std::pair<std::string, std::variant<std::int64_t, double, std::string>>> fields = {};
};

/// {"event": ..., "timestamp": ..., "step": ..., FIELDS, "message": ...}, without a line break; as json_line writes
/// numbers and times.
std::string json_line(const Event& event, double timestamp);

class EventLog {
 public:
  /// Throws Error (environment) where the file cannot be opened.
  explicit EventLog(const std::filesystem::path& folder);
  /// With the time of now.
  void add(const Event& event);

 private:
  AppendFile file_;
};

}  // namespace automodel::metrics
