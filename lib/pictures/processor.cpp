#include "pictures/processor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file_text.h"
#include "base/json_depth.h"
#include "base/utf8.h"
#include "pictures/decode.h"

namespace automodel::pictures {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int kMostSide = 1 << 14, kUsualSide = 224;
constexpr std::uint64_t kMostConfig = 1 << 20;

/// A setting with its reason not to be used; thrown within this file only.
struct Refused {
  std::string why;
};

class Settings {
 public:
  explicit Settings(const Json& json) : json_(json) {}

  bool has(const char* key) const { return find(key) != nullptr; }
  bool flag(const char* key, bool otherwise) const {
    const auto* value = find(key);
    if (value != nullptr && !value->is_boolean()) throw Refused{fmt::format("'{}' is not true or false", key)};
    return value == nullptr ? otherwise : value->get<bool>();
  }
  double number(const char* key, double otherwise) const {
    const auto* value = find(key);
    if (value != nullptr && !value->is_number()) throw Refused{fmt::format("'{}' is not a number", key)};
    return value == nullptr ? otherwise : value->get<double>();
  }
  std::string text(const char* key) const {
    const auto* value = find(key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : "";
  }
  bool is_number(const char* key) const {
    const auto* value = find(key);
    return value != nullptr && value->is_number();
  }
  /// Whether the value is a list; of these numbers.
  bool is_list(const char* key) const {
    const auto* value = find(key);
    return value != nullptr && value->is_array();
  }
  bool is_list(const char* key, const std::vector<int>& numbers) const { return is_list(key) && *find(key) == numbers; }
  std::array<double, 3> colours(const char* key, const std::array<double, 3>& otherwise) const {
    const auto* value = find(key);
    if (value == nullptr) return otherwise;
    std::array<double, 3> out{};
    const bool good = value->is_array() && value->size() == out.size() &&
                      std::all_of(value->begin(), value->end(), [](const Json& each) { return each.is_number(); });
    if (!good) throw Refused{fmt::format("'{}' is not a list of three numbers", key)};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = (*value)[i].get<double>();
    return out;
  }
  /// Pixels below `key`: a bare number, or the member of an object.
  std::optional<int> side(const char* key, const char* member) const {
    const auto* value = find(key);
    if (value != nullptr && value->is_object()) {
      const auto found = value->find(member);
      value = found == value->end() || found->is_null() ? nullptr : &*found;
    }
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || *value < 1 || *value > kMostSide)
      throw Refused{fmt::format("'{}' is not a number of pixels up to {}", key, kMostSide)};
    return value->get<int>();
  }
  std::int64_t count(const char* key, std::int64_t otherwise) const {
    const auto* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number_integer() || *value < 1 || *value > (std::int64_t{1} << 40))
      throw Refused{fmt::format("'{}' is not a number above 0", key)};
    return value->get<std::int64_t>();
  }
  /// An object below `key`; empty if there is none.
  Settings child(const char* key) const {
    static const Json kNone = Json::object();
    const auto* value = find(key);
    return Settings(value != nullptr && value->is_object() ? *value : kNone);
  }
  std::optional<Size> size(const char* key) const {
    const auto width = side(key, "width"), height = side(key, "height");
    return width && height ? std::optional<Size>({*width, *height}) : std::nullopt;
  }

 private:
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  const Json& json_;
};

/// Sizes of Qwen2VLImageProcessor; min_pixels and max_pixels win over `size`. `out`: without any.
PatchSettings patches_of(const Settings& settings, PatchSettings out = {}) {
  const auto side = [&](const char* key, int otherwise) { return static_cast<int>(settings.count(key, otherwise)); };
  out.patch = side("patch_size", out.patch);
  out.merge = side("merge_size", out.merge);
  out.frames = side("temporal_patch_size", out.frames);
  const auto size = settings.child("size");
  out.least = settings.count("min_pixels", size.count("shortest_edge", out.least));
  out.most = settings.count("max_pixels", size.count("longest_edge", out.most));
  if (out.patch > kMostSide || out.merge > kMostSide || out.side() > kMostSide)
    throw Refused{fmt::format("its patches have more than {} pixels", kMostSide)};
  if (out.least > out.most) throw Refused{"its least number of pixels is above its largest"};
  return out;
}

/// Sizes of PixtralImageProcessor, and what PixtralProcessor around it, if there is one, puts in their place.
void set_pixtral(const Settings& settings, const Settings& whole, Processor& out) {
  constexpr int kUsualPatch = 16, kUsualEdge = 1024;
  auto& patches = out.patches.emplace();
  const bool wrapped = whole.text("processor_class") == "PixtralProcessor";
  if (wrapped) {
    patches.patch = whole.side("patch_size", "height").value_or(kUsualPatch);
    patches.merge = static_cast<int>(std::min<std::int64_t>(whole.count("spatial_merge_size", 1), kMostSide));
    const auto token = [&](const char* key, const char* usual) {
      auto text = whole.text(key);
      return text.empty() ? usual : text;
    };
    out.row_end = token("image_break_token", "[IMG_BREAK]");
    out.picture_end = token("image_end_token", "[IMG_END]");
  } else {
    patches.patch = settings.side("patch_size", "height").value_or(kUsualPatch);
    patches.merge = 1;
    if (const auto width = settings.side("patch_size", "width"); width.value_or(patches.patch) != patches.patch)
      throw Refused{"its patches are not square"};
  }
  patches.frames = 1;
  if (patches.side() > kMostSide) throw Refused{fmt::format("its patches have more than {} pixels", kMostSide)};
  patches.longest_edge = settings.has("size") ? settings.side("size", "longest_edge") : kUsualEdge;
  if (!patches.longest_edge) throw Refused{"'size' has no longest_edge"};
}

/// Sizes of Gemma4ImageProcessor.
PatchSettings gemma4_patches(const Settings& settings) {
  constexpr std::array kCounts = {70, 140, 280, 560, 1120};
  constexpr int kUsualPatch = 16, kUsualPooling = 3, kUsualTokens = 280;
  PatchSettings out{.frames = 1};
  out.patch = settings.side("patch_size", "height").value_or(kUsualPatch);
  out.merge = settings.side("pooling_kernel_size", "height").value_or(kUsualPooling);
  if (out.patch > kMostSide / out.merge) throw Refused{fmt::format("its patches have more than {} pixels", kMostSide)};
  const auto tokens = settings.count("max_soft_tokens", kUsualTokens);
  if (std::ranges::find(kCounts, tokens) == kCounts.end())
    throw Refused{fmt::format("max_soft_tokens is {}; it is one of {}", tokens, fmt::join(kCounts, ", "))};
  out.soft_tokens = static_cast<int>(tokens);
  if (!settings.flag("do_resize", true)) throw Refused{"do_resize: false would give pictures any number of tokens"};
  return out;
}

/// Sizes of Step3p7ImageProcessor.
PatchSettings step_patches(const Settings& settings) {
  constexpr int kUsualPatch = 14, kUsualStride = 4;
  PatchSettings out{.frames = 1};
  auto& parts = out.parts.emplace();
  out.patch = settings.side("vision_patch_size", "height").value_or(kUsualPatch);
  out.merge = settings.side("downsampler_stride", "height").value_or(kUsualStride);
  if (out.patch > kMostSide / out.merge) throw Refused{fmt::format("its patches have more than {} pixels", kMostSide)};
  parts.whole = settings.side("size", "height").value_or(parts.whole);
  if (settings.side("size", "width").value_or(parts.whole) != parts.whole) throw Refused{"'size' is not a square"};
  parts.part = settings.side("patch_size", "height").value_or(parts.part);
  parts.longest = settings.side("max_image_size", "height").value_or(parts.longest);
  for (const int side : {parts.whole, parts.part})
    if (side % out.side() != 0)
      throw Refused{fmt::format("its squares of {} pixels are not a multiple of {}", side, out.side())};
  if (!settings.flag("do_resize", true)) throw Refused{"do_resize: false would leave pictures in any size"};
  return out;
}

/// Sizes of MuseGlimmerImageProcessor, and what MuseGlimmerProcessor puts around a picture.
void set_muse(const Settings& settings, Processor& out) {
  constexpr std::int64_t kUsualTokens = 4096, kMostTokens = 1 << 20;
  out.patches = patches_of(settings);
  const auto tokens = settings.count("max_image_tokens", kUsualTokens);
  if (tokens > kMostTokens) throw Refused{fmt::format("max_image_tokens is {}, above {}", tokens, kMostTokens)};
  out.patches->grid_tokens = static_cast<int>(tokens);
  if (!out.resize) throw Refused{"do_resize: false would give pictures any number of tokens"};
  out.picture_begin = "<|image_start|>";
  out.picture_end = "<|image_end|>";
}

/// Sizes of MiniMaxM3VLImageProcessor, and what MiniMaxM3VLProcessor puts around a picture. The published size of
/// 672 x 672 is none, as in transformers.
void set_minimax(const Settings& settings, Processor& out) {
  if (settings.is_list("size") && !settings.is_list("size", {672, 672}))
    throw Refused{"'size' is a list; it has shortest_edge and longest_edge, in pixels of a picture"};
  out.patches = patches_of(settings, {.least = 4 * 28 * 28, .most = 451584});
  out.picture_begin = "]<]start of image[>[";
  out.picture_end = "]<]end of image[>[";
}

Processor processor_of(const Settings& settings, const Settings& whole) {
  auto type = settings.text("image_processor_type");
  if (type.empty()) type = settings.text("feature_extractor_type");
  const bool clip = type.starts_with("CLIP"), qwen = type.starts_with("Qwen2VL"), pixtral = type.starts_with("Pixtral"),
             gemma3 = type.starts_with("Gemma3Image"), gemma4 = type.starts_with("Gemma4Image"),
             muse = type.starts_with("MuseGlimmerImage"),
             minimax = type.starts_with("MiniMaxM3VLImage") || type.starts_with("MiniMaxVLImage"),
             // The class that comes with the published folder has no settings of its own.
      step = type.starts_with("Step3") || (type.empty() && whole.text("processor_class") == "Step3VLProcessor");
  const bool any_size = qwen || pixtral || gemma4 || muse || minimax || step;
  if (!clip && !any_size && !type.starts_with("Siglip") && !gemma3)
    throw Refused{
        fmt::format("it is for a {}; CLIP, SigLIP, Gemma 3 and 4, Qwen2-VL, Pixtral, Muse-Glimmer, MiniMax-M3 and "
                    "Step 3.7 have supported ones",
                    type.empty() ? "processor that it does not name" : printable(type, kMostShown))};
  if (settings.flag("do_pan_and_scan", false)) throw Refused{"do_pan_and_scan cuts pictures into crops"};
  Processor out;
  out.resize = settings.flag("do_resize", true);
  if (qwen) {
    out.patches = patches_of(settings);
  } else if (pixtral) {
    set_pixtral(settings, whole, out);
  } else if (gemma4) {
    out.patches = gemma4_patches(settings);
  } else if (muse) {
    set_muse(settings, out);
  } else if (minimax) {
    set_minimax(settings, out);
  } else if (step) {
    out.patches = step_patches(settings);
  } else if (out.resize) {
    // A bare number is the shorter side, and for Gemma 3 both sides; without any number it is 224, for CLIP the
    // shorter.
    const bool given = settings.has("size");
    const auto edge = given ? settings.side("size", "shortest_edge") : std::optional(kUsualSide);
    const auto both = given ? settings.size("size") : Size{kUsualSide, kUsualSide};
    const bool square = settings.is_number("size") ? settings.flag("default_to_square", gemma3) : !given && !clip;
    if (settings.child("size").has("longest_edge")) throw Refused{"'size' limits the longest_edge"};
    if (edge && !square)
      out.shortest_edge = edge;
    else
      out.exact = both;
    if (!out.exact && !out.shortest_edge) throw Refused{"'size' has neither a shortest_edge nor height and width"};
  }
  if (pixtral && settings.flag("do_center_crop", false)) throw Refused{"do_center_crop would cut patches"};
  if (!any_size && !gemma3 && settings.flag("do_center_crop", clip)) {
    out.crop = settings.size("crop_size");
    if (!out.crop && !clip) throw Refused{"do_center_crop needs a crop_size"};
    if (!out.crop) out.crop = Size{kUsualSide, kUsualSide};
  }
  const auto resample = settings.number("resample", muse ? 1 : gemma3 || step ? 2 : 3);
  if (resample != 1 && resample != 2 && resample != 3)
    throw Refused{fmt::format("resample {} is not one of 1, 2 and 3", resample)};
  out.resampling = resample == 1 ? Resampling::kLanczos : resample == 2 ? Resampling::kBilinear : Resampling::kBicubic;
  if (settings.flag("do_rescale", true)) out.rescale = settings.number("rescale_factor", 1.0 / 255);
  out.normalize = settings.flag("do_normalize", !gemma4);
  constexpr std::array kHalf = {0.5, 0.5, 0.5}, kNone = {0.0, 0.0, 0.0}, kWhole = {1.0, 1.0, 1.0};
  constexpr std::array kMean = {0.48145466, 0.4578275, 0.40821073}, kDeviation = {0.26862954, 0.26130258, 0.27577711};
  const bool as_clip = clip || qwen || pixtral || minimax || step;
  out.mean = settings.colours("image_mean", gemma4 ? kNone : as_clip ? kMean : kHalf);
  out.deviation = settings.colours("image_std", gemma4 ? kWhole : as_clip ? kDeviation : kHalf);
  if (std::any_of(out.deviation.begin(), out.deviation.end(), [](double each) { return !(each > 0); }))
    throw Refused{"'image_std' is not above 0"};
  return out;
}

/// Source: get_resize_output_image_size of Pixtral in transformers 5.23. A side may become 0.
Size within_edge(Size from, const PatchSettings& settings) {
  double width = from.width, height = from.height;
  const double edge = *settings.longest_edge, side = settings.side(), ratio = std::max(width, height) / edge;
  if (ratio > 1) {
    width = std::floor(width / ratio);
    height = std::floor(height / ratio);
  }
  const auto whole = [&](double value) { return static_cast<int>(std::ceil(value / side) * side); };
  return {whole(width), whole(height)};
}

/// Source: get_aspect_ratio_preserving_size of Gemma 4 in transformers 5.23: nearly the largest size of the same shape
/// that has no more tokens; a very long picture has one row of them.
Size within_tokens(Size from, const PatchSettings& settings) {
  const double width = from.width, height = from.height, side = settings.side(), most = *settings.soft_tokens;
  const double factor = std::sqrt(most * side * side / (height * width));
  const auto fit = [&](double value) { return std::floor(factor * value / side); };
  double columns = fit(width), rows = fit(height);
  if (rows < 1) rows = 1, columns = most;  // one side is more than that many times the other
  if (columns < 1) columns = 1, rows = most;
  return {static_cast<int>(columns * side), static_cast<int>(rows * side)};
}

/// Rows and columns of tokens.
using Grid = std::array<std::int64_t, 2>;

/// The order in which Python lists a set of up to four such pairs, added in this order: by their hashes, those of
/// tuples. Source: Objects/tupleobject.c and Objects/setobject.c of CPython 3.8 to 3.14.
std::vector<Grid> as_python_set(const std::vector<Grid>& added) {
  constexpr std::uint64_t kFirst = 11400714785074694791U, kSecond = 14029467366897019727U,
                          kThird = 2870177450012600261U, kOfLength = 3527539U, kMask = 7;
  std::array<std::optional<Grid>, kMask + 1> slots;
  for (const auto& pair : added) {
    std::uint64_t hash = kThird;
    for (const auto each : pair) hash = std::rotl(hash + static_cast<std::uint64_t>(each) * kSecond, 31) * kFirst;
    hash += pair.size() ^ (kThird ^ kOfLength);
    auto at = hash & kMask;
    for (auto rest = hash; slots[at] && *slots[at] != pair;) {
      rest >>= 5;
      at = (at * 5 + 1 + rest) & kMask;
    }
    slots[at] = pair;
  }
  std::vector<Grid> out;
  for (const auto& slot : slots)
    if (slot) out.push_back(*slot);
  return out;
}

/// Source: smart_resize of Muse-Glimmer in transformers 5.23: of the grids around the ideal one that have few enough
/// tokens, the one nearest to the picture's shape. Squares often fit several; then the first in Python's order is
/// taken.
Size nearest_grid(Size from, const PatchSettings& settings) {
  const double width = from.width, height = from.height, side = settings.side(), most = *settings.grid_tokens;
  double rows = height / side, columns = width / side;
  const double ratio = columns / rows;
  if (rows * columns > most) {
    rows = std::pow(most / ratio, 0.5);
    columns = rows * ratio;
  }
  std::vector<Grid> around;
  for (const double y : {std::floor(rows), std::ceil(rows)})
    for (const double x : {std::floor(columns), std::ceil(columns)})
      around.push_back({static_cast<std::int64_t>(y), static_cast<std::int64_t>(x)});
  std::optional<Grid> best;
  double least = 0;
  for (const auto& grid : as_python_set(around)) {
    const auto [y, x] = grid;
    if (y < 1 || x < 1 || static_cast<double>(y) * static_cast<double>(x) > most) continue;
    const double apart = std::abs(static_cast<double>(y) / static_cast<double>(x) - height / width);
    if (best && apart >= least) continue;
    best = grid;
    least = apart;
  }
  const auto whole = [](double value) { return std::max<std::int64_t>(1, std::llrint(value)); };
  const auto [y, x] = best.value_or(Grid{whole(rows), whole(columns)});
  return {static_cast<int>(x * settings.side()), static_cast<int>(y * settings.side())};
}

/// Source: smart_resize of Qwen2-VL in transformers 5.23, which rounds halves to even.
Size by_patches(Size from, const PatchSettings& settings) {
  if (settings.longest_edge) return within_edge(from, settings);
  if (settings.parts) return {settings.parts->whole, settings.parts->whole};
  if (settings.soft_tokens) return within_tokens(from, settings);
  if (settings.grid_tokens) return nearest_grid(from, settings);
  const double width = from.width, height = from.height, side = settings.side();
  const auto even = [](double value) { return std::nearbyint(value); };
  double w = even(width / side) * side, h = even(height / side) * side;
  if (h * w > static_cast<double>(settings.most)) {
    const double beta = std::sqrt(height * width / static_cast<double>(settings.most));
    h = std::max(side, std::floor(height / beta / side) * side);
    w = std::max(side, std::floor(width / beta / side) * side);
  } else if (h * w < static_cast<double>(settings.least)) {
    const double beta = std::sqrt(static_cast<double>(settings.least) / (height * width));
    h = std::ceil(height * beta / side) * side;
    w = std::ceil(width * beta / side) * side;
  }
  const auto whole = [](double value) { return static_cast<int>(std::min(value, 1e9)); };
  return {whole(w), whole(h)};
}

}  // namespace

std::int64_t PatchSettings::most_tokens() const {
  if (parts) {
    const std::int64_t side = (parts->longest + parts->part - 1) / parts->part;
    return tokens_of(parts->whole) + side * side * tokens_of(parts->part);
  }
  const std::int64_t area = std::int64_t{side()} * side(), edge = longest_edge ? (*longest_edge - 1) / side() + 1 : 0;
  if (grid_tokens) return *grid_tokens;
  return std::max<std::int64_t>(soft_tokens ? *soft_tokens : longest_edge ? edge * edge : most / area, 1);
}

Parts PatchSettings::cut(Size from) const {
  constexpr int kThin = 32, kLong = 4;
  constexpr double kWide = 1.5, kUp = 0.2;
  Parts out{.padded = from};
  if (std::min(from.width, from.height) < kThin &&
      std::max(from.width, from.height) > kLong * std::min(from.width, from.height))
    out.padded.width = out.padded.height = std::max(from.width, from.height);
  out.reduced = out.padded;
  if (const int longer = std::max(out.padded.width, out.padded.height); longer > parts->longest) {
    const double scale = static_cast<double>(parts->longest) / longer;
    out.reduced = {static_cast<int>(out.padded.width * scale), static_cast<int>(out.padded.height * scale)};
  }
  const int shorter = std::min(out.reduced.width, out.reduced.height),
            longer = std::max(out.reduced.width, out.reduced.height);
  const double ratio = static_cast<double>(longer) / std::max(shorter, 1);
  if (longer <= parts->whole)
    out.side = ratio > kWide ? shorter : 0;
  else
    out.side = ratio > kLong ? std::min(shorter, parts->part) : parts->part;
  if (out.side == 0) return out;
  // A side is rounded down to whole parts, or up where more than a fifth of one would be lost.
  const auto snapped = [&](int side) {
    return side < out.side ? side : out.side * (side / out.side + (side % out.side > kUp * out.side ? 1 : 0));
  };
  out.cut = {snapped(out.reduced.width), snapped(out.reduced.height)};
  out.columns = std::max(1, out.cut.width / out.side);
  out.rows = std::max(1, out.cut.height / out.side);
  return out;
}

std::string Processor::refusal(Size from) const {
  if (!patches) return "";
  if (patches->parts) {
    const auto [width, height] = patches->cut(from).reduced;
    return width < 1 || height < 1
               ? fmt::format("nothing is left of the shorter of its {} x {} pixels when the longer is {}", from.width,
                             from.height, patches->parts->longest)
               : "";
  }
  constexpr int kMostRatio = 200;
  const int longer = std::max(from.width, from.height), shorter = std::min(from.width, from.height);
  if (patches->by_area() && longer > std::int64_t{kMostRatio} * shorter)
    return fmt::format("one side of its {} x {} pixels is more than {} times the other", from.width, from.height,
                       kMostRatio);
  const auto [width, height] = resized(from);
  if (resize && (width < 1 || height < 1))
    return fmt::format("nothing is left of the shorter of its {} x {} pixels when the longer is {}", from.width,
                       from.height, *patches->longest_edge);
  if (width % patches->side() != 0 || height % patches->side() != 0 || width < 1 || height < 1)
    return fmt::format("it is {} x {} pixels, and without resizing both sides must be multiples of {}", width, height,
                       patches->side());
  if (patches->positions > 0 && std::max(width, height) / patches->patch > patches->positions)
    return fmt::format("it is resized to {} x {} patches, and the tower has positions for {} along a side",
                       width / patches->patch, height / patches->patch, patches->positions);
  return "";
}

Size PictureTokens::grid(Size size) const {
  const auto [width, height] = processor->resized(size);
  return {width / processor->patches->side(), height / processor->patches->side()};
}

int PictureTokens::placeholders(Size size) const {
  if (per_picture > 0 || !processor || !processor->patches) return per_picture;
  if (in_parts()) {
    const auto& patches = *processor->patches;
    return patches.tokens_of(patches.parts->whole) + patches.cut(size).count() * patches.tokens_of(patches.parts->part);
  }
  const auto [columns, rows] = grid(size);
  return columns * rows;
}
int PictureTokens::count(Size size) const {
  if (in_parts()) {  // a token in front of each square and one behind it, and one behind rows of parts but the last
    const auto parts = processor->patches->cut(size);
    return placeholders(size) + 2 * (parts.count() + 1) + std::max(parts.rows - 1, 0);
  }
  const bool ends = per_picture == 0 && processor && processor->patches && !processor->row_end.empty();
  return placeholders(size) + (ends ? grid(size).height : 0);
}

Size Processor::resized(Size from) const {
  if (patches) return resize ? by_patches(from, *patches) : from;
  if (exact) return *exact;
  if (!shortest_edge) return from;
  const auto longer = [&](int other, int shorter) {
    return static_cast<int>(static_cast<double>(*shortest_edge) * other / shorter);
  };
  return from.width <= from.height ? Size{*shortest_edge, longer(from.height, from.width)}
                                   : Size{longer(from.width, from.height), *shortest_edge};
}

std::optional<Size> Processor::result() const {
  return patches ? std::nullopt : crop ? crop : exact;
}

std::optional<Processor> parse_processor(std::string_view text, std::string& why, std::string_view whole) {
  const auto parsed = [](std::string_view from) {
    return nesting_of(from) > kDeepestJson ? Json() : Json::parse(from, nullptr, false);
  };
  const auto json = parsed(text), around = whole.empty() ? json : parsed(whole);
  if (!json.is_object() || !around.is_object()) {
    why = "it is not a JSON object";
    return std::nullopt;
  }
  const auto nested = json.find("image_processor");
  try {
    return processor_of(Settings(nested != json.end() && nested->is_object() ? *nested : json), Settings(around));
  } catch (const Refused& refused) {
    why = refused.why;
    return std::nullopt;
  }
}

bool has_processor(const fs::path& folder) {
  std::error_code error;
  return std::ranges::any_of(kProcessorFiles, [&](const char* name) { return fs::exists(folder / name, error); });
}

std::optional<Processor> read_processor(const fs::path& folder, std::string& why) {
  std::array<std::optional<std::string>, kProcessorFiles.size()> texts;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::error_code error;
    if (!fs::exists(folder / kProcessorFiles[i], error)) continue;
    auto file = file_text(folder / kProcessorFiles[i], kMostConfig);
    if (!file.problem.empty()) {
      why = file.problem;
      return std::nullopt;
    }
    texts[i] = std::move(file.text);
  }
  const auto& [settings, whole] = texts;
  if (settings || whole) return parse_processor(settings ? *settings : *whole, why, whole.value_or(""));
  why = "there is no preprocessor_config.json";
  return std::nullopt;
}

}  // namespace automodel::pictures
