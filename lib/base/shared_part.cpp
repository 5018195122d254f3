#include "base/shared_part.h"

#include <algorithm>
#include <system_error>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

namespace automodel {

namespace fs = std::filesystem;

fs::path program_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

std::vector<fs::path> part_places(const fs::path& folder, const std::string& file) {
  const auto above = folder.parent_path();
  std::vector<fs::path> out = {folder / file, above / "lib" / "automodel" / file};
  if (above / "bin" != folder) out.push_back(above / "bin" / file);
  return out;
}

std::string shown_places(const std::vector<fs::path>& places) {
  std::string out;
  for (const auto& place : places) out += fmt::format("{}'{}'", out.empty() ? "" : ", ", place.native());
  return out;
}

fs::path first_that_exists(const std::vector<fs::path>& places) {
  const auto found = std::ranges::find_if(places, [](const fs::path& place) {
    std::error_code error;
    return fs::exists(place, error);
  });
  return found != places.end() ? *found : fs::path();
}

fs::path folder_of_object(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? fs::path(map->l_name).parent_path()
                                                                      : fs::path();
}

const void* open_part(const fs::path& file, const char* entry, std::string& reason) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    reason = fmt::format("'{}' cannot be loaded: {}", file.native(), dlerror());
    return nullptr;
  }
  const auto function = reinterpret_cast<const void* (*)()>(dlsym(handle, entry));
  return function == nullptr ? nullptr : function();
}

std::string other_version(const fs::path& file) {
  return fmt::format("'{}' belongs to another version of this program", file.native());
}

}  // namespace automodel
