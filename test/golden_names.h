// The short notation for lists of module names in test/golden (see its README.md).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "golden_ranks.h"

namespace automodel::golden {

/// The modules that NeMo AutoModel lists before the decoder of any model, whether the model has them or not.
inline constexpr std::array<std::string_view, 15> kEncoderNames = {"vision_tower",          "visual",
                                                                   "vision_model",          "image_encoder",
                                                                   "vision_encoder",        "embed_vision",
                                                                   "audio_tower",           "audio_encoder",
                                                                   "audio_model",           "mm_projector",
                                                                   "multi_modal_projector", "multimodal_projector",
                                                                   "vision_projector",      "vit_large_projector",
                                                                   "audio_projector"};

/// Words separated by spaces; "PREFIXlayers.A..B" is a run of layers, "PREFIX*" the fifteen multimodal modules under a
/// prefix.
inline std::vector<std::string> names(const std::string& text) {
  std::vector<std::string> out;
  if (text.empty()) return out;
  for (const auto& word : split(text, ' ')) {
    const auto dots = word.find("..");
    if (dots != std::string::npos) {
      const auto number = word.rfind('.', dots - 1) + 1;
      for (int i = std::stoi(word.substr(number, dots - number)); i <= std::stoi(word.substr(dots + 2)); ++i)
        out.push_back(word.substr(0, number) + std::to_string(i));
    } else if (word.back() == '*') {
      for (const auto module : kEncoderNames) out.push_back(word.substr(0, word.size() - 1) + std::string(module));
    } else {
      out.push_back(word);
    }
  }
  return out;
}

}  // namespace automodel::golden
