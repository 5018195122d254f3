// Instructions and conversations from JSONL files.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// A line is a sample (conversation.h says how). All rows are encoded once, into the cache of tokens (token_store.h),
/// whose name depends on the content of the files, of the tokenizer and of the template, and on the options.
///
/// Problems: those of find_files (a folder stands for its .jsonl, .json and .ndjson files) and of the tokenizer;
/// `bad-row`, `sequence-too-long` and `token-out-of-range` with file and line, where there are more than max_bad_rows;
/// `empty-data` where no row is left or none has a label.
std::unique_ptr<Dataset> open_jsonl(const config::JsonlDatasetConfig& config, const DatasetContext& context,
                                    Diagnostics& problems);

}  // namespace automodel::data
