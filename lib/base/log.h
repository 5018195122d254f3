// Lines for the person who watches the program, on standard error. Nothing here is a result.
#pragma once

#include <string_view>

namespace automodel::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

/// Lines below `level` are dropped. The initial level is kInfo.
void set_level(Level level);
/// Put before every line of this process, for example "[rank 3] "; empty by default.
void set_prefix(std::string_view prefix);
void debug(std::string_view message);
void info(std::string_view message);
void warning(std::string_view message);
void error(std::string_view message);

}  // namespace automodel::log
