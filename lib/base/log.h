// Log lines for whoever is watching, on standard error. Results are never written here.
#pragma once

#include <functional>
#include <string_view>

#include "base/diagnostic.h"

namespace automodel::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

/// Lines below `level` are dropped. The initial level is kInfo.
void set_level(Level level);
/// Called before each line, on the thread that writes it; an empty function removes the hook. Used to erase a visible
/// progress bar so that no line is appended to it.
void set_before_line(std::function<void()> hook);
/// Called with each warning and error that is written, on the thread that writes it; an empty function removes the
/// listener. The log is locked meanwhile: a listener that logs would wait for itself.
void set_listener(std::function<void(std::string_view message)> listener);
void debug(std::string_view message);
void info(std::string_view message);
void warning(std::string_view message);
/// A warning with its id, place and hint, as plans print it; the text says itself that it is a warning.
void warning(const Diagnostic& diagnostic);
void error(std::string_view message);

}  // namespace automodel::log
