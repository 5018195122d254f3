// Instructions and conversations from JSONL files.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// Each line is a sample (conversation.h describes how). All rows are encoded once, into the token cache
/// (token_store.h), under a name that depends on the content of the files, the tokenizer, the template and the options.
///
/// Problems: those of find_files (a folder means its .jsonl, .json and .ndjson files) and of the tokenizer; `bad-row`,
/// `sequence-too-long` and `token-out-of-range` with file and line if there are more than max_bad_rows; `empty-data` if
/// no row is left or none has a label.
std::unique_ptr<Dataset> open_jsonl(const config::JsonlDatasetConfig& config, const DatasetContext& context,
                                    Diagnostics& problems);

}  // namespace automodel::data
