#include <webp/decode.h>

#include "pictures/module/decoders.h"

namespace automodel::pictures {

bool decode_webp(const Source& source) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(source.bytes, source.count, &features) != VP8_STATUS_OK)
    return source.fail("its header is damaged");
  if (features.has_animation != 0) return source.fail("it is animated");
  const auto width = static_cast<unsigned>(features.width), height = static_cast<unsigned>(features.height);
  auto* out = source.size(width, height);
  if (out == nullptr) return true;
  const auto stride = 3 * features.width;
  const auto bytes = static_cast<std::size_t>(stride) * height;
  return WebPDecodeRGBInto(source.bytes, source.count, out, bytes, stride) != nullptr ||
         source.fail("it is damaged or cut off");
}

}  // namespace automodel::pictures
