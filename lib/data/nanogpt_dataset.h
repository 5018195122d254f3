// Datasets of the nanoGPT family's token files.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// Windows (token_sequence.h) of all files, in their order. Problems: those of find_files; `bad-file`; `bad-value` for
/// dtype; `empty-data`; `sequence-too-long`.
std::unique_ptr<Dataset> open_nanogpt(const config::NanogptDatasetConfig& config, const DatasetContext& context,
                                      Diagnostics& problems);

}  // namespace automodel::data
