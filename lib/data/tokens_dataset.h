// Rows of token ids from JSONL files.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// Each line {"input_ids": [...], "labels": [...], "attention_mask": [...]} is a sample. Labels are unshifted, aligned
/// with their own token as in Hugging Face, and are shifted here; if absent, they are the input ids. Positions with
/// attention_mask 0 are padding: nothing attends to them, and both their label and the label that would be predicted
/// from them (the first one after left padding) are ignored. Trailing padding is cut off.
///
/// All rows are parsed once at startup, and the first problems are reported with file, line and reason; after that a
/// row takes 16 bytes of memory and is parsed again when it is read.
///
/// Problems: those of find_files (a folder means its .jsonl, .json and .ndjson files); `bad-row`; `token-out-of-range`
/// for an id beyond the vocabulary; `sequence-too-long` for a row longer than seq_length or the model's limit;
/// `empty-data` if there are no rows or no labels.
std::unique_ptr<Dataset> open_tokens(const config::TokensDatasetConfig& config, const DatasetContext& context,
                                     Diagnostics& problems);

}  // namespace automodel::data
