// Arbitrary bytes as a picture: its pixels, as many as its size says, or a reason; nothing but a PictureError is
// thrown.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "pictures/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automodel::pictures;  // NOLINT(google-build-using-namespace): a program of one file
  try {
    const auto picture = decode({reinterpret_cast<const char*>(data), size});
    const auto& side = picture->size;
    if (side.width < 1 || side.height < 1 ||
        picture->rgb.size() !=
            std::size_t{3} * static_cast<std::size_t>(side.width) * static_cast<std::size_t>(side.height))
      std::abort();
  } catch (const PictureError& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}
