// Modules of a multimodal model outside its decoder: image and audio encoders, and the projectors that map their
// outputs to the decoder's width.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::arch {

struct Tower {
  std::string fqn = {};   ///< as in transformers; empty if the model's names are unknown
  std::string what = {};  ///< display name: "CLIP", "Pixtral", "Qwen ViT", "MoonViT", "projector", "vision", ...
  std::optional<std::int64_t> parameters = {};  ///< unset: unknown architecture, or the config omits sizes
  int layers = 0;
  std::int64_t hidden = 0;
  /// Tokens per image of the config's image_size, including a class token; 0: variable image sizes, or no images.
  std::int64_t tokens = 0;
  double token_flops = 0;  ///< forward FLOPs per token without attention scores, 2 per weight multiplication
  double flops = 0;        ///< forward FLOPs per image, with scores; 0 if `tokens` is
  bool cached = false;     ///< as in Parameter

  /// A projector: no layers that attend.
  bool projects() const { return what == "projector"; }
  /// Sets tokens per image, and FLOPs with them.
  void set_tokens(std::int64_t count);

  bool operator==(const Tower&) const = default;
};

/// The modules that a multimodal config.json describes besides its decoder, encoders first. Empty for a language model,
/// and for text that is not a JSON object. `text_hidden`: the decoder's width. Sizes follow transformers'
/// CLIPVisionModel, SiglipVisionModel, PixtralVisionModel, Qwen2VL's VisionTransformer, and the projectors of LLaVA,
/// LLaVA-NeXT, Gemma 3, PaliGemma and Mistral 3, and for what is only planned the towers and projectors of Kimi-VL and
/// Kimi-K2.5. Sizes of Qwen's other towers, Gemma 4's, Muse-Glimmer's and MiniMax-M3's follow from their parameters
/// (vision.h).
std::vector<Tower> towers_of(std::string_view config_text, std::int64_t text_hidden);

/// The family of a multimodal model's decoder, such as "qwen2" for Qwen2.5-VL. Empty for other names.
std::string_view decoder_family(std::string_view model_type);

}  // namespace automodel::arch
