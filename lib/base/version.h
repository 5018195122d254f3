// The program's version, as printed by --version and written into plans and checkpoints.
#pragma once

#include <string_view>

namespace automodel {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace automodel
