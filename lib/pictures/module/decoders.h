// One decoder per file format. The libraries report errors by longjmp, which must not pass objects with destructors:
// each decoder keeps what it owns outside of the function that it calls them in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pictures/module/picture_module.h"

namespace automodel::pictures {

struct Source {
  const std::uint8_t* bytes;
  std::size_t count;
  const AutomodelPictureTaker& taker;
  void* self;

  bool fail(const char* reason) const {
    taker.fail(self, reason);
    return false;
  }
  std::uint8_t* size(std::uint32_t width, std::uint32_t height) const {
    return taker.size(self, static_cast<int>(width), static_cast<int>(height));
  }
};

bool decode_jpeg(const Source& source);
bool decode_png(const Source& source);
bool decode_webp(const Source& source);

}  // namespace automodel::pictures
