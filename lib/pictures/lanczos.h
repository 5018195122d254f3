// Resizing by Lanczos's kernel, which LibTorch 2.11 lacks.
#pragma once

#include "pictures/picture.h"

namespace automodel::pictures {

/// The picture in another size: columns first, then rows, in bytes. Source: _upsample_lanczos2d_aa of PyTorch 2.15,
/// which rounds weights to 16 bits.
Picture lanczos(const Picture& picture, Size to);

}  // namespace automodel::pictures
