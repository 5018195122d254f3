#include "pictures/decode.h"

#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/file_text.h"
#include "base/utf8.h"
#include "pictures/module/picture_module.h"
#include "pictures/orientation.h"

namespace automodel::pictures {
namespace {

namespace fs = std::filesystem;
using Module = AutomodelPictureModule;

struct Found {
  const Module* module = nullptr;
  std::string reason;
};

/// Looks next to the program, where `cmake --install` puts it, and where a build has it, seen from the tests.
Found find_module() {
  constexpr const char* kFile = "automodel-picture.so";
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& path :
       {folder / kFile, folder.parent_path() / "lib" / "automodel" / kFile, folder.parent_path() / "bin" / kFile}) {
    if (!fs::exists(path, error)) continue;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return {nullptr, fmt::format("'{}' cannot be loaded: {}", path.native(), dlerror())};
    const auto entry = reinterpret_cast<const Module* (*)()>(dlsym(handle, "automodel_picture_module"));
    const Module* module = entry == nullptr ? nullptr : entry();
    if (module != nullptr && module->version == AUTOMODEL_PICTURE_VERSION) return {module, ""};
    return {nullptr, fmt::format("'{}' belongs to another version of this program", path.native())};
  }
  return {nullptr,
          "the decoders are not installed (scripts/install_dependencies.sh gets their libraries; then build again)"};
}

/// What a decoder tells.
struct Taking {
  Picture picture = {};
  std::string problem = {};
};

std::uint8_t* take_size(void* self, int width, int height) {
  auto& taking = *static_cast<Taking*>(self);
  taking.picture.size = {width, height};
  if (width < 1 || height < 1)
    taking.problem = fmt::format("its size is {} x {}", width, height);
  else if (std::int64_t{width} * height > kMostPixels)
    taking.problem = fmt::format("it has {} x {} pixels, more than {}", width, height, kMostPixels);
  if (!taking.problem.empty()) return nullptr;
  taking.picture.rgb.resize(std::size_t{3} * static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  return taking.picture.rgb.data();
}

void take_reason(void* self, const char* reason) {
  static_cast<Taking*>(self)->problem = printable(reason, kMostShown);
}

}  // namespace

PicturePtr decode(std::string_view bytes) {
  static const Found found = find_module();  // never closed
  if (found.module == nullptr) throw PictureError(found.reason);
  const AutomodelPictureTaker taker{take_size, take_reason};
  Taking taking;
  found.module->decode(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), &taker, &taking);
  if (!taking.problem.empty()) throw PictureError(taking.problem);
  return std::make_shared<const Picture>(upright(std::move(taking.picture), orientation_of(bytes)));
}

PicturePtr read_picture(const fs::path& file) {
  const auto [text, problem, too_large] = file_text(file, kMostBytes);
  if (!problem.empty()) throw PictureError(problem);
  return decode(text);
}

}  // namespace automodel::pictures
