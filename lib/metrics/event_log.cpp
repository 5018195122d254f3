#include "metrics/event_log.h"

#include <fmt/format.h>

#include "metrics/jsonl.h"

namespace automodel::metrics {

std::string json_line(const Event& event, double timestamp) {
  std::string out = fmt::format("{{\"event\": {}, \"timestamp\": \"{}\"", json_text(event.event), time_text(timestamp));
  if (event.step) out += fmt::format(", \"step\": {}", *event.step);
  for (const auto& [name, value] : event.fields) {
    out += fmt::format(", {}: ", json_text(name));
    if (const auto* text = std::get_if<std::string>(&value))
      out += json_text(*text);
    else if (const auto* number = std::get_if<double>(&value))
      out += number_text(*number);
    else
      out += std::to_string(std::get<std::int64_t>(value));
  }
  return out + fmt::format(", \"message\": {}}}", json_text(event.message));
}

EventLog::EventLog(const std::filesystem::path& folder) : file_(folder / kEventFile, AppendFile::Mode::kExisting) {}

void EventLog::add(const Event& event) {
  file_.append(json_line(event, now_seconds()) + "\n");
}

}  // namespace automodel::metrics
