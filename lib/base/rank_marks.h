// How the ranks tell the process watching them that all have started, and that all are done.
#pragma once

#include <string_view>

namespace automodel {

/// With kTellsMarks, rank 0 writes the first line to standard error once every rank has joined, and one of the others
/// once every rank has done its work and only has to exit: kDoneMark if the exit code is 0, kStoppedMark if it is that
/// of a run that was asked to stop. Launchers forward standard error from any host. The watcher removes the lines.
inline constexpr std::string_view kStartMark = "\x06\n", kDoneMark = "\x04\n", kStoppedMark = "\x05\n";
/// Worker option that requests the lines.
inline constexpr const char* kTellsMarks = "--tells-marks";

}  // namespace automodel
