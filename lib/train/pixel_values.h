// From a picture's bytes to the numbers that a vision tower takes.
#pragma once

#include <ATen/core/Tensor.h>

#include "pictures/processor.h"

namespace automodel::train {

/// float32 [3, height, width] or, of a processor for patches, [patches, 3 * patch * patch]; equal to what transformers'
/// torchvision backend makes of the picture: bytes are resized as bytes, then cropped, then rescaled and normalised in
/// one step of float32.
at::Tensor pixel_values(const pictures::Picture& picture, const pictures::Processor& processor);

}  // namespace automodel::train
