#include "metrics/event_log.h"

#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "metrics/jsonl.h"

namespace automodel::metrics {

std::string json_line(const Event& event, double timestamp) {
  // Texts come from outside (a cause, a path): what is no UTF-8 must not end a run.
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::string out = fmt::format("{{\"event\": {}, \"timestamp\": \"{}\"", quoted(event.event), time_text(timestamp));
  if (event.step) out += fmt::format(", \"step\": {}", *event.step);
  for (const auto& [name, value] : event.fields) {
    out += fmt::format(", {}: ", quoted(name));
    if (const auto* text = std::get_if<std::string>(&value))
      out += quoted(*text);
    else if (const auto* number = std::get_if<double>(&value))
      out += number_text(*number);
    else
      out += std::to_string(std::get<std::int64_t>(value));
  }
  return out + fmt::format(", \"message\": {}}}", quoted(event.message));
}

EventLog::EventLog(const std::filesystem::path& folder) : file_(folder / kEventFile, AppendFile::Mode::kExisting) {}

void EventLog::add(const Event& event) {
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  file_.append(json_line(event, now) + "\n");
}

}  // namespace automodel::metrics
