// The vision tower of a model that is trained with pictures, and the projector behind it: sizes, options, parameters.
// towers.h knows more kinds, of which only sizes are planned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "arch/shape.h"

namespace automodel::arch {

struct Layout;
class ConfigReader;

/// A ViT over pictures of one size, as transformers' CLIPVisionModel, and LLaVA's projector: two linear layers with a
/// GELU between. The rows of the projector replace the placeholder tokens of a picture.
struct VisionSpec {
  int hidden = 0;
  int ffn = 0;
  int layers = 0;
  int heads = 0;
  int image = 0;  ///< side of a picture in pixels
  int patch = 0;  ///< side of a patch in pixels
  double eps = 1e-5;
  int used_layers = 0;     ///< the first so many layers run; those behind them are stored, but never used
  bool class_row = false;  ///< the class token's row is passed on too
  bool projector_bias = true;
  int image_token = 0;  ///< id of the placeholder

  static constexpr int kChannels = 3;
  int patches() const { return (image / patch) * (image / patch); }
  /// Placeholder tokens of a picture.
  int tokens() const { return patches() + (class_row ? 1 : 0); }
  bool operator==(const VisionSpec&) const = default;
};

/// Names of its modules in memory.
inline constexpr std::string_view kTowerModule = "model.vision_tower", kProjectorModule = "model.multi_modal_projector";

/// What a multimodal config.json says of its tower, if models like it are trained; otherwise empty, and `why` says what
/// stands against it. Problems of single keys go to the readers.
std::optional<VisionSpec> read_vision(ConfigReader& config, std::string& why);

/// Adds the tower's and the projector's parameters (Layout::tower_parameters); `text_hidden`: width of the decoder.
void lay_out_vision(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout);

}  // namespace automodel::arch
