// tokenizer.model: the sentencepiece library's file, converted to an equivalent tokenizer.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace automodel::tokenizer {

/// Whether the bytes can be such a file: other formats also use the name tokenizer.model.
bool is_sentencepiece_file(std::string_view bytes);

/// The text of the tokenizer.json. `config` is tokenizer_config.json, whose add_bos_token (default true) and
/// add_eos_token determine the tokens around a text. Nothing after a `bad-tokenizer` problem, which names `file`.
std::optional<std::string> json_of_sentencepiece(std::string_view bytes, const std::optional<std::string>& config,
                                                 const std::string& file, Diagnostics& problems);

}  // namespace automodel::tokenizer
