// The LibTorch that this program runs with must be the one it was compiled for: there is no stable interface for what
// it uses of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/diagnostic.h"

namespace automodel::train {

/// As torch/headeronly/version.h packs it: the major version in the highest byte, then minor and patch.
std::string torch_version_text(std::uint64_t packed);
/// Version of the LibTorch that is loaded.
std::uint64_t loaded_torch();
/// A problem (cannot-start) if the version that is loaded is not the one that this was compiled for.
std::optional<Diagnostic> torch_problem(std::uint64_t loaded = loaded_torch());

}  // namespace automodel::train
