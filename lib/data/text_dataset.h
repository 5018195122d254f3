// Plain text: files concatenated, separated by the tokenizer's EOS, and cut into windows.
#pragma once

#include <memory>

#include "data/open_dataset.h"
#include "data/source_files.h"
#include "data/tokenizer.h"

namespace automodel::data {

/// Windows over the concatenated text (token_sequence.h). With the byte-level tokenizer windows are read from the files
/// on demand, whatever the size of the data; with other tokenizers everything is encoded once, into the token cache
/// (token_store.h).
///
/// Problems: those of find_files; `empty-data` for fewer than two tokens; `sequence-too-long`; `token-out-of-range` if
/// the tokenizer's vocabulary is larger than the model's.
std::unique_ptr<Dataset> open_text(const config::TextDatasetConfig& config, const DatasetContext& context,
                                   Diagnostics& problems);

/// The same from files and a tokenizer; null for fewer than two tokens. `cache` is the folder of the token cache.
std::unique_ptr<Dataset> make_text_dataset(const SourceFiles& sources, const Tokenizer& tokenizer,
                                           std::int64_t seq_length, const std::optional<std::filesystem::path>& cache);

}  // namespace automodel::data
