// Token files of the nanoGPT family.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/token_sequence.h"

namespace automodel::data {

/// The tokens of a file. It begins with 256 integers of 32 bits (a magic number, the version 1, the number of tokens,
/// and in the newer format their size in bytes; llm.c's and modded-nanogpt's files have 16 bits), or, where
/// `headerless` says the type, with the first token, as nanoGPT's own train.bin. Null after setting `problem`.
std::optional<MappedSequence::Span> read_nanogpt_header(std::string_view file, std::optional<TokenType> headerless,
                                                        std::string& problem);

}  // namespace automodel::data
