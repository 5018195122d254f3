// Pictures from files: JPEG, PNG and WebP, through the shared object built on libjpeg-turbo, libpng and libwebp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "pictures/picture.h"

namespace automodel::pictures {

inline constexpr std::size_t kMostShown = 200;  ///< bytes of a file's text in a message

/// Thrown for a picture that cannot be used; what() says why, without its name.
class PictureError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Larger files are not read, and larger pictures not decoded: their pixels take 3 bytes each, and in progressive and
/// interlaced files up to 12 while they are decoded. Pillow warns of more pixels than this.
inline constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
inline constexpr std::int64_t kMostPixels = 89478485;

/// RGB as Pillow's exif_transpose and convert("RGB"), which is how transformers loads a file: turned upright by the
/// Exif tag of orientation, unless that is false; transparency dropped. Throws PictureError, also if the shared object
/// is missing.
PicturePtr decode(std::string_view bytes, bool upright = true);
PicturePtr read_picture(const std::filesystem::path& file);
/// A file's bytes. Throws PictureError.
std::string picture_file(const std::filesystem::path& file);
/// "image/png", "image/jpeg" or "image/webp", by the first bytes; empty for anything else, which is not decoded either.
std::string_view media_type(std::string_view bytes);

}  // namespace automodel::pictures
