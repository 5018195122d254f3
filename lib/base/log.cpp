#include "base/log.h"

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace automodel::log {
namespace {

/// Built on first use, so that commands that never log pay nothing.
spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("automodel", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

/// What is called with each line. The mutex also keeps lines of several threads apart.
struct Hooks {
  std::mutex mutex = {};
  std::function<void()> before_line = {};
  std::function<void(std::string_view)> listener = {};
};
Hooks& hooks() {
  static Hooks one;
  return one;
}

void write(spdlog::level::level_enum level, std::string_view start, std::string_view message) {
  if (!logger().should_log(level)) return;
  const std::lock_guard lock(hooks().mutex);
  if (hooks().before_line) hooks().before_line();
  logger().log(level, "{}{}", start, message);
  if (level >= spdlog::level::warn && hooks().listener) hooks().listener(message);
}

}  // namespace

void set_level(Level level) {
  switch (level) {
    case Level::kDebug: return logger().set_level(spdlog::level::debug);
    case Level::kInfo: return logger().set_level(spdlog::level::info);
    case Level::kWarning: return logger().set_level(spdlog::level::warn);
    case Level::kError: return logger().set_level(spdlog::level::err);
    case Level::kOff: return logger().set_level(spdlog::level::off);
  }
}

void set_before_line(std::function<void()> hook) {
  const std::lock_guard lock(hooks().mutex);
  hooks().before_line = std::move(hook);
}
void set_listener(std::function<void(std::string_view)> hook) {
  const std::lock_guard lock(hooks().mutex);
  hooks().listener = std::move(hook);
}
void debug(std::string_view message) {
  write(spdlog::level::debug, "", message);
}
void info(std::string_view message) {
  write(spdlog::level::info, "", message);
}
void warning(std::string_view message) {
  write(spdlog::level::warn, "warning: ", message);
}
void warning(const Diagnostic& diagnostic) {
  write(spdlog::level::warn, "", to_text(diagnostic, "warning"));
}
void error(std::string_view message) {
  write(spdlog::level::err, "error: ", message);
}

}  // namespace automodel::log
