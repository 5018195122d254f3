// tokenizer.model: the file of the sentencepiece library, read as the tokenizer.json that means the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace automodel::tokenizer {

/// True where the bytes may be such a file: tokenizer.model is also the name of other formats.
bool is_sentencepiece_file(std::string_view bytes);

/// The text of the tokenizer.json. `config` is tokenizer_config.json, whose add_bos_token (true where it is not said)
/// and add_eos_token say what stands around texts. Nothing after a `bad-tokenizer` problem, which names `file`.
std::optional<std::string> json_of_sentencepiece(std::string_view bytes, const std::optional<std::string>& config,
                                                 const std::string& file, Diagnostics& problems);

}  // namespace automodel::tokenizer
