// Events of a run other than its steps: saves, restarts, skipped steps, warnings. One JSON object per line in
// events.jsonl, in order. Nothing is ever removed, not even the events of steps that a resumed run repeats.
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
  std::string event = {};                 ///< "start", "saved", "restart", ...: docs/events.md lists all
  std::optional<std::int64_t> step = {};  ///< in or after which it happened
  std::string message = {};               ///< human-readable
  /// Additional named values.
  std::vector<std::pair<std::string, std::variant<std::int64_t, double, std::string>>> fields = {};
};

/// {"event": ..., "timestamp": ..., "step": ..., FIELDS, "message": ...}, without a line break; numbers and times are
/// formatted as in jsonl.h.
std::string json_line(const Event& event, double timestamp);

class EventLog {
 public:
  /// Throws Error (environment) if the file cannot be opened.
  explicit EventLog(const std::filesystem::path& folder);
  /// Timestamps the event with the current time.
  void add(const Event& event);

 private:
  AppendFile file_;
};

}  // namespace automodel::metrics
