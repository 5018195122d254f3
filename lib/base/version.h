// The program's version, as printed by --version and written into plans and checkpoints: that of the project in
// CMakeLists.txt.
#pragma once

#include <string_view>

namespace automodel {

extern const std::string_view kVersion;

}  // namespace automodel
