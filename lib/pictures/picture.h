// A decoded picture.
#pragma once

#include <array>
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

/// A hash of size and pixels, or of what these are drawn from; zeros: not known.
using PictureContent = std::array<std::uint64_t, 2>;

/// What a picture is known by without its pixels.
struct PictureMark {
  Size size = {};
  PictureContent content = {};
  bool operator==(const PictureMark&) const = default;
};

struct Picture : PictureMark {
  std::vector<std::uint8_t> rgb = {};  ///< rows from the top, three bytes a pixel
};

using PicturePtr = std::shared_ptr<const Picture>;

}  // namespace automodel::pictures
