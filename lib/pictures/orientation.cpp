#include "pictures/orientation.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace automodel::pictures {
namespace {

/// Numbers in a text; 0 beyond its end.
class Numbers {
 public:
  Numbers(std::string_view text, bool big) : text_(text), big_(big) {}
  std::uint32_t operator()(std::size_t at, std::size_t bytes) const {
    if (at > text_.size() || bytes > text_.size() - at) return 0;
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < bytes; ++i)
      out = out << 8 | static_cast<unsigned char>(text_[at + (big_ ? i : bytes - 1 - i)]);
    return out;
  }

 private:
  std::string_view text_;
  bool big_;
};

std::string_view part(std::string_view text, std::size_t at, std::size_t size) {
  return at > text.size() ? std::string_view() : text.substr(at, size);
}

std::string_view without_name(std::string_view exif) {
  constexpr std::string_view kName("Exif\0\0", 6);
  return exif.starts_with(kName) ? exif.substr(kName.size()) : exif;
}

/// The segment "Exif" of a JPEG file, without its name.
std::string_view exif_of_jpeg(std::string_view file) {
  const Numbers number(file, true);
  constexpr std::uint32_t kMark = 0xFF, kApp1 = 0xE1, kScan = 0xDA;
  for (std::size_t at = 2; number(at, 1) == kMark && number(at + 1, 1) != kScan;) {
    if (number(at + 1, 1) == kMark) {  // padding
      ++at;
      continue;
    }
    const auto size = number(at + 2, 2);
    if (number(at + 1, 1) == kApp1 && part(file, at + 4, 6) == std::string_view("Exif\0\0", 6))
      return part(file, at + 10, size < 8 ? 0 : size - 8);
    at += 2 + std::max<std::size_t>(size, 2);
  }
  return {};
}

std::string_view exif_of_png(std::string_view file) {
  const Numbers number(file, true);
  for (std::size_t at = 8; at + 12 <= file.size();) {
    const auto size = number(at, 4);
    if (part(file, at + 4, 4) == "eXIf") return without_name(part(file, at + 8, size));
    at += std::size_t{12} + size;
  }
  return {};
}

std::string_view exif_of_webp(std::string_view file) {
  const Numbers number(file, false);
  for (std::size_t at = 12; at + 8 <= file.size();) {
    const auto size = number(at + 4, 4);
    if (part(file, at, 4) == "EXIF") return without_name(part(file, at + 8, size));
    at += std::size_t{8} + size + size % 2;
  }
  return {};
}

}  // namespace

int orientation_of(std::string_view file) {
  const auto exif = file.starts_with("\xFF\xD8")  ? exif_of_jpeg(file)
                    : file.starts_with("\x89PNG") ? exif_of_png(file)
                    : file.starts_with("RIFF")    ? exif_of_webp(file)
                                                  : std::string_view();
  // A TIFF header, and the entries of its first directory: tag, type, count, value.
  const Numbers number(exif, exif.starts_with("MM"));
  const std::size_t first = number(4, 4);
  constexpr std::uint32_t kOrientation = 0x0112;
  constexpr std::size_t kEntry = 12;
  for (std::uint32_t i = 0, count = number(first, 2); i < count; ++i) {
    const auto at = first + 2 + kEntry * i;
    if (number(at, 2) != kOrientation) continue;
    const auto value = number(at + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Picture upright(Picture picture, int orientation) {
  if (orientation == 1) return picture;
  const auto width = static_cast<std::size_t>(picture.size.width),
             height = static_cast<std::size_t>(picture.size.height);
  const bool swapped = orientation >= 5;
  Picture out{{picture.size}, std::vector<std::uint8_t>(picture.rgb.size())};
  if (swapped) std::swap(out.size.width, out.size.height);
  const std::size_t columns = swapped ? height : width, rows = swapped ? width : height;
  // Where a pixel of the result comes from: Exif says which side of the stored picture is the top, and which the left.
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  for (std::size_t y = 0; y < rows; ++y)
    for (std::size_t x = 0; x < columns; ++x) {
      const auto across = swapped ? y : x, down = swapped ? x : y;
      const auto source = (from_bottom ? height - 1 - down : down) * width + (from_right ? width - 1 - across : across);
      std::copy_n(picture.rgb.begin() + static_cast<std::ptrdiff_t>(3 * source), 3,
                  out.rgb.begin() + static_cast<std::ptrdiff_t>(3 * (y * columns + x)));
    }
  return out;
}

}  // namespace automodel::pictures
