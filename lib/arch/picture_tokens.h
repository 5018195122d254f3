// How pictures stand in the rows of a multimodal model.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace automodel::arch {

struct PictureTokens {
  std::int32_t placeholder = 0;
  int per_picture = 0;  ///< how many placeholders a picture has
  bool operator==(const PictureTokens&) const = default;
};

/// Of LLaVA with a CLIP tower, whose pictures have one size; empty for other models. Source: LlavaProcessor of
/// transformers 5.23.
std::optional<PictureTokens> picture_tokens(std::string_view config_text);

}  // namespace automodel::arch
