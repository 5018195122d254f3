// What transformers makes of a tokenizer.json whose tokenizer_class is LlamaTokenizer.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace automodel::tokenizer {

/// transformers 5.23 builds LlamaTokenizer (and LlamaTokenizerFast, the same class) from the vocabulary alone: it
/// replaces normalizer, pre-tokenizer and decoder of tokenizer.json by its own, where a mark is put before the first
/// piece of a text only. Does the same to `document` and returns true if that class is chosen: `config`
/// (tokenizer_config.json) or else `model` (config.json) names it, the file is not byte-level, no code of the folder's
/// own is named, and the model's type is not among those that are read as written (mistral, phi3, granite, ...).
bool rebuild_as_llama(nlohmann::json& document, const std::optional<std::string>& config,
                      const std::optional<std::string>& model);

}  // namespace automodel::tokenizer
