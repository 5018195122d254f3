#include "pictures/module/picture_module.h"

#include <cstring>
#include <new>

#include "pictures/module/decoders.h"

namespace automodel::pictures {
namespace {

bool begins(const std::uint8_t* bytes, std::size_t count, std::size_t at, const char* with, std::size_t length) {
  return count >= at + length && std::memcmp(bytes + at, with, length) == 0;
}

int decode(const std::uint8_t* bytes, std::size_t count, const AutomodelPictureTaker* taker, void* self) {
  const Source source{bytes, count, *taker, self};
  try {
    if (begins(bytes, count, 0, "\xFF\xD8\xFF", 3)) return decode_jpeg(source) ? 1 : 0;
    if (begins(bytes, count, 0, "\x89PNG\r\n\x1A\n", 8)) return decode_png(source) ? 1 : 0;
    if (begins(bytes, count, 0, "RIFF", 4) && begins(bytes, count, 8, "WEBP", 4)) return decode_webp(source) ? 1 : 0;
  } catch (const std::bad_alloc&) {
    return source.fail("there is not enough memory for it") ? 1 : 0;
  }
  return source.fail("it is no JPEG, PNG or WebP file") ? 1 : 0;
}

constexpr AutomodelPictureModule kModule{AUTOMODEL_PICTURE_VERSION, decode};

}  // namespace
}  // namespace automodel::pictures

__attribute__((visibility("default"))) const void* automodel_picture_module() {
  return &automodel::pictures::kModule;
}
