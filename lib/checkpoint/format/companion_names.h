// Names of the files that accompany a model's weights.
#pragma once

#include <array>

namespace automodel::checkpoint {

inline constexpr std::array kTokenizerFiles = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "tokenizer.model"};
inline constexpr std::array kTemplateFiles = {"chat_template.jinja", "chat_template.json"};
inline constexpr const char* kGenerationFile = "generation_config.json";

}  // namespace automodel::checkpoint
