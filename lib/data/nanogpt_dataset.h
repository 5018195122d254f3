// Datasets of the nanoGPT family's token files.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// Windows (token_sequence.h) over all files, in order. Problems: those of find_files; `bad-file`; `bad-value` for
/// dtype; `empty-data`; `sequence-too-long`.
std::unique_ptr<Dataset> open_nanogpt(const config::NanogptDatasetConfig& config, const DatasetContext& context,
                                      Diagnostics& problems);

}  // namespace automodel::data
