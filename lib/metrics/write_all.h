// Text to a descriptor that somebody may or may not read.
#pragma once

#include <string_view>

namespace automodel::metrics {

/// All of `text`, also to a descriptor that does not block. What cannot be written is nobody's to repair: a reader that
/// went away must not end a run.
void write_all(int file, std::string_view text);

}  // namespace automodel::metrics
