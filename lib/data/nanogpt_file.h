// Token files of the nanoGPT family.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/token_sequence.h"

namespace automodel::data {

/// Locates the tokens in a file. Either the file begins with a header of 256 32-bit integers: a magic number, version
/// 1, the token count and, in the newer format, bytes per token (llm.c and modded-nanogpt use 16-bit tokens); or, if
/// `headerless` gives the token type, the file begins with the first token, as nanoGPT's own train.bin does. Null after
/// setting `problem`.
std::optional<MappedSequence::Span> read_nanogpt_header(std::string_view file, std::optional<TokenType> headerless,
                                                        std::string& problem);

}  // namespace automodel::data
