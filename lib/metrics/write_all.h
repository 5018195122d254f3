// Writing text to a descriptor that may or may not have a reader.
#pragma once

#include <string_view>

namespace automodel::metrics {

/// Writes all of `text`, waiting if the descriptor is non-blocking. Errors are ignored: a reader that went away must
/// not end a run.
void write_all(int file, std::string_view text);

}  // namespace automodel::metrics
