// Plain text: files joined, with the tokenizer's end-of-text between them, and cut into windows.
#pragma once

#include <memory>

#include "data/open_dataset.h"
#include "data/source_files.h"
#include "data/tokenizer.h"

namespace automodel::data {

/// Windows of the joined text (token_sequence.h). With the byte-level tokenizer windows are read from the files as they
/// are needed, whatever the size of the data; other tokenizers encode everything once, into the cache of tokens
/// (token_store.h).
///
/// Problems: those of find_files; `empty-data` for less than two tokens; `sequence-too-long`; `token-out-of-range`
/// where the tokenizer's vocabulary is larger than the model's.
std::unique_ptr<Dataset> open_text(const config::TextDatasetConfig& config, const DatasetContext& context,
                                   Diagnostics& problems);

/// The same from files and a tokenizer; null for less than two tokens. `cache` is the folder where tokens are kept.
std::unique_ptr<Dataset> make_text_dataset(const SourceFiles& sources, const Tokenizer& tokenizer,
                                           std::int64_t seq_length, const std::optional<std::filesystem::path>& cache);

}  // namespace automodel::data
