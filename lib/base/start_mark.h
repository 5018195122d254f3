// How the ranks signal the process watching them that all have started.
#pragma once

#include <string_view>

namespace automodel {

/// With kTellsStart, rank 0 writes this line to standard error once every rank has joined; launchers forward standard
/// error from any host. The watcher removes the line.
inline constexpr std::string_view kStartMark = "\x06\n";
/// Worker option that requests the line.
inline constexpr const char* kTellsStart = "--tells-start";

}  // namespace automodel
