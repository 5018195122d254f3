// Rows of token ids from JSONL files.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// A line {"input_ids": [...], "labels": [...], "attention_mask": [...]} is a sample. Labels stand under their own
/// token as in Hugging Face and are shifted here; where they are absent they are the input ids. Where attention_mask is
/// 0 the position is padding: nothing attends to it, its label is ignored, and so is the label that would be predicted
/// from it (the first one after padding on the left). Padding at the end of a row is cut off.
///
/// All rows are parsed once at the start, and the first problems are reported with file, line and reason; after that a
/// row costs 16 bytes of memory, and is parsed again when it is read.
///
/// Problems: those of find_files (a folder stands for its .jsonl, .json and .ndjson files); `bad-row`;
/// `token-out-of-range` for an id beyond the vocabulary; `sequence-too-long` for a row beyond seq_length or the model's
/// limit; `empty-data` where there is no row or no label.
std::unique_ptr<Dataset> open_tokens(const config::TokensDatasetConfig& config, const DatasetContext& context,
                                     Diagnostics& problems);

}  // namespace automodel::data
