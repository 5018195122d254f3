// How a model wants its pictures: the settings of transformers' image processors.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "pictures/picture.h"

namespace automodel::pictures {

enum class Resampling { kBilinear, kBicubic, kLanczos };

/// Step3p7ImageProcessor: a picture becomes a square of `whole` pixels, and larger or longer ones are also cut into
/// parts, which become squares of `part` pixels.
struct PartSettings {
  int whole = 728, part = 504;
  int longest = 3024;  ///< sides are reduced to it before they are cut
  bool operator==(const PartSettings&) const = default;
};

/// How a picture is cut.
struct Parts {
  Size padded = {};   ///< very long pictures are first made square with 0 at the right and the bottom
  Size reduced = {};  ///< then resized to this
  Size cut = {};      ///< for its parts, resized to this instead
  int side = 0;       ///< of a part before it is resized; 0: no parts
  int columns = 0, rows = 0;
  int count() const { return columns * rows; }
};

/// Pictures of any size in patches: sides are multiples of patch * merge. Qwen2VLImageProcessor and MiniMax-M3's keep
/// the number of pixels between `least` and `most`, PixtralImageProcessor both sides within `longest_edge`,
/// Gemma4ImageProcessor enlarges or reduces pictures until they have nearly `soft_tokens` tokens,
/// MuseGlimmerImageProcessor reduces those of more than `grid_tokens` and otherwise takes the nearest shape.
struct PatchSettings {
  int patch = 14;  ///< side in pixels
  int merge = 2;   ///< merge x merge patches become one token
  int frames = 2;
  std::int64_t least = 56 * 56, most = 28 * 28 * 1280;
  std::optional<int> longest_edge = {};  ///< in pixels, before sides are rounded up; then the limits above do not count
  std::optional<int> soft_tokens = {};   ///< of a picture at most; then they do not count either
  std::optional<int> grid_tokens = {};   ///< the same of MuseGlimmerImageProcessor
  std::optional<PartSettings> parts = {};  ///< squares; then they do not count either
  int positions = 0;                       ///< patches along a side that the tower has positions for; 0: any number
  bool by_area() const { return !longest_edge && !soft_tokens && !grid_tokens && !parts; }
  /// Source: Step3p7ImageProcessor of transformers 5.23. Of pictures with `parts` only.
  Parts cut(Size from) const;
  int tokens_of(int pixels) const { return pixels / side() * (pixels / side()); }  ///< of a square
  int side() const { return patch * merge; }
  /// The most tokens that a picture can have; with `parts`, one whose sides differ no more than 4 times: longer ones
  /// are cut into as many parts as the shorter side fits into the longer.
  std::int64_t most_tokens() const;
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
  /// PixtralProcessor: tokens behind each row of placeholders, and behind the last one; empty: none.
  std::string row_end = {}, picture_end = {};
  /// MuseGlimmerProcessor and MiniMaxM3VLProcessor: a token in front of the placeholders, and `picture_end` behind
  /// them; empty: none.
  std::string picture_begin = {};

  /// The size to which a picture is resized, before it is cropped. Source: get_resize_output_image_size in transformers
  /// 5.23, which rounds down, its namesake of Pixtral, smart_resize of Qwen2-VL and of Muse-Glimmer, and
  /// get_aspect_ratio_preserving_size of Gemma 4.
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
  /// Gemma: the processor puts these around a picture's placeholders; -1: nothing.
  std::int32_t begin = -1, end = -1;
  bool own_lines = false;  ///< Gemma 3: on lines of their own, and the chat template names a picture by `begin`
  bool axes = false;       ///< tokens have places by time, row and column (M-RoPE)

  bool in_parts() const { return per_picture == 0 && processor && processor->patches && processor->patches->parts; }
  /// Placeholders of a picture with this size as a file, of any size and in one part: by columns and rows.
  Size grid(Size size) const;
  /// Placeholders of the picture, in place of which the tower's rows come.
  int placeholders(Size size) const;
  /// Tokens of the picture: placeholders, and what is behind their rows.
  int count(Size size) const;
  bool operator==(const PictureTokens&) const = default;
};

/// Names of the files with a processor's settings. The first that is there says how pictures become pixels; Pixtral's
/// patches and tokens are always in the second.
inline constexpr std::array kProcessorFiles = {"preprocessor_config.json", "processor_config.json"};
/// Whether a folder has one of them.
bool has_processor(const std::filesystem::path& folder);

/// Reads preprocessor_config.json, or the "image_processor" of processor_config.json, as CLIPImageProcessor,
/// SiglipImageProcessor, Gemma3ImageProcessor, Gemma4ImageProcessor, Qwen2VLImageProcessor, PixtralImageProcessor,
/// MuseGlimmerImageProcessor, MiniMaxM3VLImageProcessor and Step3p7ImageProcessor do. `whole`: processor_config.json
/// beside it; empty: `text` is all there is. Null if it is another processor, or a setting is not supported; `why` then
/// says so.
std::optional<Processor> parse_processor(std::string_view text, std::string& why, std::string_view whole = {});
/// The same from a model's folder.
std::optional<Processor> read_processor(const std::filesystem::path& folder, std::string& why);

}  // namespace automodel::pictures
