// Megatron's indexed datasets.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// Windows (token_sequence.h) of all documents, in their order; `split` takes a range of the documents of each file.
/// A path is a prefix, or one of the two files. Token files are mapped, not read.
///
/// Problems: those of find_files; `missing-file` for one of the two; `bad-index` for an index that is broken or names
/// bytes that the .bin file does not have; `bad-value` for a split; `empty-data`; `sequence-too-long`. An id beyond the
/// model's vocabulary ends the run where it is read.
std::unique_ptr<Dataset> open_megatron(const config::MegatronDatasetConfig& config, const DatasetContext& context,
                                       Diagnostics& problems);

}  // namespace automodel::data
