#include "base/cuda_plugin.h"

#include <cstdlib>

#include "base/shared_part.h"

namespace automodel {
namespace {

namespace fs = std::filesystem;

const char* named() {
  const char* name = std::getenv(kCudaPluginVariable);
  return name != nullptr && *name != '\0' ? name : nullptr;
}

}  // namespace

bool cuda_plugin_named() {
  return named() != nullptr;
}

std::vector<fs::path> cuda_plugin_places(const fs::path& folder) {
  if (const char* name = named()) return {name};
  return part_places(folder, kCudaPlugin);
}

fs::path find_cuda_plugin(const fs::path& folder) {
  return first_that_exists(cuda_plugin_places(folder));
}

}  // namespace automodel
