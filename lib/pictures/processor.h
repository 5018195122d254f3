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

/// Pictures of any size in patches, as Qwen2VLImageProcessor resizes them: sides are multiples of patch * merge, and
/// there are at least `least` and at most `most` pixels.
struct PatchSettings {
  int patch = 14;  ///< side in pixels
  int merge = 2;   ///< merge x merge patches become one token
  int frames = 2;
  std::int64_t least = 56 * 56, most = 28 * 28 * 1280;
  int side() const { return patch * merge; }
  bool operator==(const PatchSettings&) const = default;
};

/// Resize, crop, rescale, normalise, in this order; what is empty or off is left out.
struct Processor {
  std::optional<int> shortest_edge = {};      ///< resize so that the shorter side has this many pixels
  std::optional<Size> exact = {};             ///< or to this size
  std::optional<PatchSettings> patches = {};  ///< or to a number of patches
  bool resize = true;                         ///< of `patches`: false keeps sizes, which must be multiples
  Resampling resampling = Resampling::kBicubic;
  std::optional<Size> crop = {};  ///< around the middle; what the picture lacks is 0
  double rescale = 1;
  bool normalize = false;
  std::array<double, 3> mean = {}, deviation = {1, 1, 1};

  /// The size to which a picture is resized, before it is cropped. Source: get_resize_output_image_size in transformers
  /// 5.23, which rounds down, and smart_resize of Qwen2-VL.
  Size resized(Size from) const;
  /// Why a picture of this size cannot be used; empty if it can.
  std::string refusal(Size from) const;
  /// The size of every result; empty if it depends on the picture.
  std::optional<Size> result() const;
  bool operator==(const Processor&) const = default;
};

/// How pictures stand in rows of tokens.
struct PictureTokens {
  std::int32_t placeholder = 0;
  int per_picture = 0;                      ///< of pictures of one size; else 0, and `processor` has `patches`
  std::optional<Processor> processor = {};  ///< known where there is one: what it would make is bounded
  /// What stands before and behind answers; empty: the chat template shows it.
  std::string answer = {}, stop = {};
  bool both_ways = false;  ///< a picture's tokens see each other
  /// Gemma 3: the chat template names a picture by `begin`; the processor puts it on lines of its own, with the
  /// placeholders and `end` behind it. -1: the template has the placeholder itself.
  std::int32_t begin = -1, end = -1;

  /// Placeholders of a picture with this size as a file.
  int count(Size size) const;
};

/// Names of the files with a processor's settings, the first that is there counts.
inline constexpr std::array kProcessorFiles = {"preprocessor_config.json", "processor_config.json"};
/// Whether a folder has one of them.
bool has_processor(const std::filesystem::path& folder);

/// Reads preprocessor_config.json, or the "image_processor" of processor_config.json, as CLIPImageProcessor,
/// SiglipImageProcessor, Gemma3ImageProcessor and Qwen2VLImageProcessor do. Null if it is another processor, or a
/// setting is not supported; `why` then says so.
std::optional<Processor> parse_processor(std::string_view text, std::string& why);
/// The same from a model's folder.
std::optional<Processor> read_processor(const std::filesystem::path& folder, std::string& why);

}  // namespace automodel::pictures
