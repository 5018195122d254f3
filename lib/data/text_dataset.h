// Plain text: files joined, with the tokenizer's end-of-text between them, and cut into windows.
#pragma once

#include <memory>

#include "data/open_dataset.h"
#include "data/source_files.h"
#include "data/tokenizer.h"

namespace automodel::data {

/// Window k holds tokens k * seq_length ... (k + 1) * seq_length of the joined text: seq_length inputs, and as labels
/// the same shifted by one, so that each token but the first is predicted once an epoch. The last window may be
/// shorter. With the byte-level tokenizer windows are read from the files as they are needed, whatever the size of the
/// data; other tokenizers encode everything once, into 4 bytes a token.
///
/// Problems: those of find_files; `empty-data` for less than two tokens; `sequence-too-long`; `token-out-of-range`
/// where the tokenizer's vocabulary is larger than the model's.
std::unique_ptr<Dataset> open_text(const config::TextDatasetConfig& config, const DatasetContext& context,
                                   Diagnostics& problems);

/// The same from files and a tokenizer; null for less than two tokens.
std::unique_ptr<Dataset> make_text_dataset(const SourceFiles& sources, std::unique_ptr<const Tokenizer> tokenizer,
                                           std::int64_t seq_length);

}  // namespace automodel::data
