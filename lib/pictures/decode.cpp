#include "pictures/decode.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file_text.h"
#include "base/shared_part.h"
#include "base/utf8.h"
#include "pictures/module/picture_module.h"
#include "pictures/orientation.h"

namespace automodel::pictures {
namespace {

namespace fs = std::filesystem;
using Module = AutomodelPictureModule;

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

PicturePtr decode(std::string_view bytes, bool upright) {
  static const auto found = open_part<Module>(part_places(program_folder(), "automodel-picture.so"),
                                              "automodel_picture_module", AUTOMODEL_PICTURE_VERSION);
  if (found.interface == nullptr)
    throw PictureError(!found.reason.empty() ? found.reason
                                             : "the decoders are not installed (scripts/install_dependencies.sh gets "
                                               "their libraries; then build again)");
  const AutomodelPictureTaker taker{take_size, take_reason};
  Taking taking;
  found.interface->decode(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), &taker, &taking);
  if (!taking.problem.empty()) throw PictureError(taking.problem);
  const int orientation = upright ? orientation_of(bytes) : 1;
  return std::make_shared<const Picture>(pictures::upright(std::move(taking.picture), orientation));
}

PicturePtr read_picture(const fs::path& file) {
  return decode(picture_file(file));
}

std::string picture_file(const fs::path& file) {
  auto [text, problem, too_large] = file_text(file, kMostBytes);
  if (!problem.empty()) throw PictureError(problem);
  return std::move(text);
}

std::string_view media_type(std::string_view bytes) {
  if (bytes.starts_with("\xFF\xD8\xFF")) return "image/jpeg";
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) return "image/png";
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) return "image/webp";
  return {};
}

}  // namespace automodel::pictures
