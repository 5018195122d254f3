// The vision tower of a model that is trained with pictures, and the projector behind it: sizes, options, parameters.
// towers.h knows more kinds, of which only sizes are planned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/shape.h"

namespace automodel::arch {

struct Layout;
class ConfigReader;
struct ModelSpec;

enum class TowerKind : std::uint8_t {
  kClip,     ///< transformers' CLIPVisionModel; pictures of one size
  kSiglip,   ///< transformers' SiglipVisionModel: no class token, no norm in front; pictures of one size
  kQwen25,   ///< Qwen2.5-VL: RMSNorm, gated MLP, most layers attend within windows; pictures of any size
  kQwen3,    ///< Qwen3-VL and Qwen3.5: LayerNorm, learned positions beside the rotary ones; pictures of any size
  kPixtral,  ///< Mistral 3: RMSNorm, gated MLP, no biases; pictures of any size
  kGemma4,   ///< Gemma 4: RMSNorms around attention and a gated MLP, and of each head; pictures of any size
  kMuse,     ///< Muse-Glimmer: LayerNorm, learned positions beside the rotary ones, windows; pictures of any size
  kMiniMax,  ///< MiniMax-M3: CLIP's layers with a rotation; pictures of any size
  kStep,     ///< Step 3.7: LayerNorm, learned positions beside the rotary ones, convolutions behind it; squares
};

/// Display name: "CLIP", "Qwen ViT", ...
std::string_view name_of(TowerKind kind);

/// A ViT and what follows it up to the decoder's width. Its rows replace the placeholder tokens of a picture.
struct VisionSpec {
  TowerKind kind = TowerKind::kClip;
  int hidden = 0;
  int ffn = 0;
  int layers = 0;
  int heads = 0;
  int patch = 0;  ///< side of a patch in pixels
  double eps = 1e-5;
  int image_token = 0;  ///< id of the placeholder

  int used_layers = 0;  ///< the first so many layers run; those behind them are stored, but never used

  // CLIP and SigLIP
  int image = 0;              ///< side of a picture in pixels; of Pixtral, the longest that is usual; of Step, the
                              ///< largest square's
  bool drops_first = false;   ///< the first row, CLIP's class token, is not passed on
  bool pooling_head = false;  ///< SigLIP: a head that is stored, but never used
  /// Gemma 3's projector: rows are normed by the tower, their means over squares are projected, so many to a side. 0:
  /// LLaVA's, two linear layers with a GELU between.
  int pooled = 0;
  bool projector_bias = true;  ///< LLaVA, Mistral 3 and Step

  // Gemma
  bool both_ways = false;                         ///< a picture's tokens in the decoder see each other, also later ones
  bool windows_only = false;                      ///< in layers with a window only (Gemma 4)
  std::int32_t begin_token = -1, end_token = -1;  ///< around a picture's placeholders

  // Qwen, Pixtral, Gemma 4, Muse-Glimmer, MiniMax-M3 and Step
  int merge = 1;                       ///< merge x merge patches become one row of the decoder
  int frames = 1;                      ///< of the patch's weight; a still picture is the same in all of them
  int table = 0;                       ///< side of the table of learned positions; Gemma 4: rows of its two;
                                       ///< Step: side for the largest square, others interpolate
  int window = 0;                      ///< side of a window, Qwen2.5: in rows of the decoder, Muse-Glimmer: in patches
  std::vector<int> whole_layers = {};  ///< with windows: layers that attend over the whole picture
  std::vector<int> deep_layers = {};   ///< Qwen3-VL: the j-th's output is added, merged, behind decoder layer j

  // Pixtral, Muse-Glimmer and MiniMax-M3
  double theta = 1e4;        ///< of the rotary frequencies
  double projector_eps = 0;  ///< of the projector's norm
  int projector_width = 0;   ///< Muse-Glimmer and MiniMax-M3: of its hidden layers
  bool gelu = false;         ///< activation of the gated MLP; else SiLU

  double layer_scale = 0;  ///< Step, which has `theta` too: where the factors of its branches begin

  // Gemma 4, which has `theta` too
  bool clipped = false;       ///< inputs and outputs of its linear modules are limited to stored ranges
  bool standardized = false;  ///< rows are shifted and scaled by stored numbers before they are projected

  static constexpr int kChannels = 3;
  bool qwen() const { return kind == TowerKind::kQwen25 || kind == TowerKind::kQwen3; }
  bool any_size() const { return kind != TowerKind::kClip && kind != TowerKind::kSiglip; }
  int out_width() const { return kind == TowerKind::kStep ? 4 * hidden : hidden; }  ///< of a row for the projector
  /// Of one size: patches, rows of the tower, and placeholder tokens of a picture.
  int patches() const { return (image / patch) * (image / patch); }
  int rows() const { return patches() + (kind == TowerKind::kClip ? 1 : 0); }
  int tokens() const { return pooled > 0 ? pooled * pooled : rows() - (drops_first ? 1 : 0); }
  bool operator==(const VisionSpec&) const = default;
};

/// A picture in patches.
struct PatchGrid {
  int rows = 0, columns = 0;
  std::int64_t patches() const { return std::int64_t{rows} * columns; }
  bool operator==(const PatchGrid&) const = default;
};

/// Names of its modules in memory: tower and projector (Gemma 4's has another name, Muse-Glimmer's is two modules), or
/// Qwen's tower, which ends in the decoder's width.
inline constexpr std::string_view kTowerModule = "model.vision_tower", kProjectorModule = "model.multi_modal_projector",
                                  kEmbedderModule = "model.embed_vision", kVisualModule = "model.visual",
                                  kAdapterModule = "model.vision_adapter",
                                  kProjectionModule = "model.vision_projection", kStepModule = "model.vision_model";

/// What a multimodal config.json says of its tower, if models like it are trained; otherwise empty, and `why` says what
/// stands against it. Problems of single keys go to the readers. `decoder`: the text part, already read.
std::optional<VisionSpec> read_vision(ConfigReader& config, const ModelSpec& decoder, std::string& why);

/// Adds the tower's and the projector's parameters (Layout::tower_parameters); `text_hidden`: width of the decoder.
void lay_out_vision(const VisionSpec& vision, std::int64_t text_hidden, Layout& layout);

}  // namespace automodel::arch
