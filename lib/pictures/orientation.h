// Exif's tag of orientation.
#pragma once

#include <string_view>

#include "pictures/picture.h"

namespace automodel::pictures {

/// 1 to 8 as in Exif; 1, upright, if the JPEG, PNG or WebP file does not say.
int orientation_of(std::string_view file);
/// The picture turned and mirrored so that it is upright.
Picture upright(Picture picture, int orientation);

}  // namespace automodel::pictures
