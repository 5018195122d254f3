// libjpeg-turbo with its default settings, which are Pillow's.
#include <csetjmp>
#include <cstdio>
#include <vector>

#include <jerror.h>
#include <jpeglib.h>

#include "pictures/module/decoders.h"

namespace automodel::pictures {
namespace {

/// A picture of so many scans is made to keep a decoder busy; those that programs write have about ten.
constexpr int kMostScans = 200;

struct Errors {
  jpeg_error_mgr base;
  std::jmp_buf back;
  char reason[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  errors->base.format_message(info, errors->reason);
  std::longjmp(errors->back, 1);
}
/// Warnings are passed over, as in Pillow, but for the end of the file, which libjpeg makes up for with grey.
void warn(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) leave(info);
}
void watch_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  auto* errors = reinterpret_cast<Errors*>(info->err);
  std::snprintf(errors->reason, sizeof errors->reason, "it has more than %d scans", kMostScans);
  std::longjmp(errors->back, 1);
}

/// round(a * b / 255), as Pillow multiplies bytes.
int product(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

/// One row of C, M, Y, K, stored as 255 - value: Adobe's programs do so, and Pillow reads all such files like that.
void to_rgb(const JSAMPLE* row, unsigned width, std::uint8_t* out) {
  for (unsigned x = 0; x < width; ++x) {
    const auto value = [&](unsigned channel) { return 255 - row[4 * x + channel]; };
    const int light = 255 - value(3);
    for (unsigned channel = 0; channel < 3; ++channel) {
      const int ink = light - product(value(channel), light);
      out[3 * x + channel] = static_cast<std::uint8_t>(ink < 0 ? 0 : ink);
    }
  }
}

/// `row`: room for a row of four channels.
bool read(jpeg_decompress_struct& info, const Source& source, std::vector<JSAMPLE>& row) {
  jpeg_read_header(&info, TRUE);
  const bool inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  auto* out = source.size(info.image_width, info.image_height);
  if (out == nullptr) return true;
  row.resize(inks ? std::size_t{4} * info.image_width : 0);
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    JSAMPLE* line = out + std::size_t{3} * info.output_scanline * info.output_width;
    JSAMPLE* to = inks ? row.data() : line;
    jpeg_read_scanlines(&info, &to, 1);
    if (inks) to_rgb(row.data(), info.output_width, line);
  }
  return true;
}

/// False after an error, which comes back here by longjmp.
bool try_read(jpeg_decompress_struct& info, Errors& errors, jpeg_progress_mgr& progress, const Source& source,
              std::vector<JSAMPLE>& row) {
  if (setjmp(errors.back) != 0) return false;
  jpeg_create_decompress(&info);
  info.progress = &progress;
  jpeg_mem_src(&info, source.bytes, source.count);
  return read(info, source, row);
}

}  // namespace

bool decode_jpeg(const Source& source) {
  jpeg_decompress_struct info{};
  Errors errors{};
  jpeg_progress_mgr progress{};
  std::vector<JSAMPLE> row;
  info.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = leave;
  errors.base.emit_message = warn;
  progress.progress_monitor = watch_scans;
  const bool good = try_read(info, errors, progress, source, row);
  jpeg_destroy_decompress(&info);
  return good || source.fail(errors.reason);
}

}  // namespace automodel::pictures
