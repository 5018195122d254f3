// A decoded picture.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace automodel::pictures {

/// In pixels, both at least 1.
struct Size {
  int width = 0;
  int height = 0;
  bool operator==(const Size&) const = default;
};

struct Picture {
  Size size = {};
  std::vector<std::uint8_t> rgb = {};  ///< rows from the top, three bytes a pixel
};

using PicturePtr = std::shared_ptr<const Picture>;

}  // namespace automodel::pictures
