#include "train/torch_version.h"

#include <fmt/format.h>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

namespace automodel::train {

std::string torch_version_text(std::uint64_t packed) {
  return fmt::format("{}.{}.{}", packed >> 56U, packed >> 48U & 0xffU, packed >> 40U & 0xffU);
}

std::uint64_t loaded_torch() {
  return aoti_torch_abi_version();  // of the stable C interface
}

std::optional<Diagnostic> torch_problem(std::uint64_t loaded) {
  constexpr std::uint64_t kBuilt = TORCH_ABI_VERSION;
  if (loaded >> 40U == kBuilt >> 40U) return std::nullopt;
  const auto needed = torch_version_text(kBuilt);
  return Diagnostic{"cannot-start"}
      .says("this is LibTorch {}; automodel-worker is made for {}", torch_version_text(loaded), needed)
      .hint("pip install torch=={} in the environment that is used, or set LD_LIBRARY_PATH to its lib", needed);
}

}  // namespace automodel::train
