#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include <png.h>

#include "pictures/module/decoders.h"

namespace automodel::pictures {
namespace {

constexpr png_alloc_size_t kMostChunk = 8 << 20;  // texts and profiles, which may be compressed
constexpr png_uint_32 kMostSide = 1 << 24;

/// What is read, and where from; also the memory of the rows.
struct Reading {
  const Source& source;
  std::size_t at = 0;
  char reason[128] = "";
  std::vector<std::uint8_t> wide = {};  ///< rows of 16-bit grey
  std::vector<png_bytep> rows = {};
};

void take(png_structp png, png_bytep out, png_size_t count) {
  auto& reading = *static_cast<Reading*>(png_get_io_ptr(png));
  if (count > reading.source.count - reading.at) png_error(png, "it ends too early");
  std::memcpy(out, reading.source.bytes + reading.at, count);
  reading.at += count;
}
[[noreturn]] void leave(png_structp png, png_const_charp reason) {
  auto& reading = *static_cast<Reading*>(png_get_error_ptr(png));
  std::snprintf(reading.reason, sizeof reading.reason, "%s", reason);
  png_longjmp(png, 1);
}
void pass(png_structp, png_const_charp) {}

/// The format of the rows: RGB, or grey of 16 bits. The interlaced ones need all rows at once.
void read(png_structp png, png_infop info, Reading& reading) {
  png_read_info(png, info);
  const auto width = png_get_image_width(png, info), height = png_get_image_height(png, info);
  auto* out = reading.source.size(width, height);
  if (out == nullptr) return;
  const auto color = png_get_color_type(png, info);
  const bool wide = color == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) == 16;
  if (!wide) {
    png_set_strip_16(png);
    png_set_packing(png);
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if ((color & PNG_COLOR_MASK_COLOR) == 0) {
      png_set_expand_gray_1_2_4_to_8(png);
      png_set_gray_to_rgb(png);
    }
    png_set_strip_alpha(png);
  }
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const auto bytes = png_get_rowbytes(png, info);
  if (bytes != std::size_t{width} * (wide ? 2 : 3)) png_error(png, "its rows have an unknown format");
  if (wide) reading.wide.resize(bytes * height);
  reading.rows.resize(height);
  for (std::size_t y = 0; y < height; ++y) reading.rows[y] = (wide ? reading.wide.data() : out) + y * bytes;
  png_read_image(png, reading.rows.data());
  for (std::size_t i = 0; 2 * i < reading.wide.size(); ++i) {
    const auto* two = reading.wide.data() + 2 * i;
    std::fill_n(out + 3 * i, 3, two[0] > 0 ? std::uint8_t{255} : two[1]);
  }
}

/// False after an error, which comes back here by longjmp.
bool try_read(png_structp png, png_infop info, Reading& reading) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_read_fn(png, &reading, take);
  png_set_user_limits(png, kMostSide, kMostSide);
  png_set_chunk_malloc_max(png, kMostChunk);
  // Texts, which nobody reads, would each be unpacked to that size, a thousand of them.
  png_set_chunk_cache_max(png, 1);
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  read(png, info, reading);
  return true;
}

}  // namespace

bool decode_png(const Source& source) {
  Reading reading{source};
  auto* png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, leave, pass);
  auto* info = png == nullptr ? nullptr : png_create_info_struct(png);
  if (info == nullptr) std::snprintf(reading.reason, sizeof reading.reason, "there is no memory");
  const bool good = info != nullptr && try_read(png, info, reading);
  png_destroy_read_struct(&png, &info, nullptr);
  return good || source.fail(reading.reason);
}

}  // namespace automodel::pictures
