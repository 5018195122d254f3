// How a model wants its pictures: the settings of transformers' image processors for pictures of one size.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "pictures/picture.h"

namespace automodel::pictures {

enum class Resampling { kBilinear, kBicubic };

/// Resize, crop, rescale, normalise, in this order; what is empty or off is left out.
struct Processor {
  std::optional<int> shortest_edge = {};  ///< resize so that the shorter side has this many pixels
  std::optional<Size> exact = {};         ///< or to this size
  Resampling resampling = Resampling::kBicubic;
  std::optional<Size> crop = {};  ///< around the middle; what the picture lacks is 0
  double rescale = 1;
  bool normalize = false;
  std::array<double, 3> mean = {}, deviation = {1, 1, 1};

  /// The size to which a picture is resized, before it is cropped. Source: get_resize_output_image_size in transformers
  /// 5.23, which rounds down.
  Size resized(Size from) const;
  /// The size of every result; empty if it depends on the picture.
  std::optional<Size> result() const;
  bool operator==(const Processor&) const = default;
};

/// How pictures stand in rows of tokens.
struct PictureTokens {
  std::int32_t placeholder = 0;
  int per_picture = 0;
  std::optional<Processor> processor = {};  ///< known where there is one: what it would make is bounded
};

/// Names of the files with a processor's settings, the first that is there counts.
inline constexpr std::array kProcessorFiles = {"preprocessor_config.json", "processor_config.json"};
/// Whether a folder has one of them.
bool has_processor(const std::filesystem::path& folder);

/// Reads preprocessor_config.json, or the "image_processor" of processor_config.json, as CLIPImageProcessor and
/// SiglipImageProcessor do. Null if it is another processor, or a setting is not supported; `why` then says so.
std::optional<Processor> parse_processor(std::string_view text, std::string& why);
/// The same from a model's folder.
std::optional<Processor> read_processor(const std::filesystem::path& folder, std::string& why);

}  // namespace automodel::pictures
