// Token files of the nanoGPT family.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/open_dataset.h"
#include "data/token_sequence.h"

namespace automodel::data {

/// The tokens of a file. It begins with 256 integers of 32 bits (a magic number, the version 1, the number of tokens,
/// and in the newer format their size in bytes; llm.c's and modded-nanogpt's files have 16 bits), or, where
/// `headerless` says the type, with the first token, as nanoGPT's own train.bin. Null after setting `problem`.
std::optional<MappedSequence::Span> read_nanogpt_header(std::string_view file, std::optional<TokenType> headerless,
                                                        std::string& problem);

/// Windows (token_sequence.h) of all files, in their order. Problems: those of find_files; `bad-file`; `bad-value` for
/// dtype; `empty-data`; `sequence-too-long`.
std::unique_ptr<Dataset> open_nanogpt(const config::NanogptDatasetConfig& config, const DatasetContext& context,
                                      Diagnostics& problems);

}  // namespace automodel::data
