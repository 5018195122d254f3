// Megatron's indexed datasets.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// Windows (token_sequence.h) over all documents, in order; `split` selects a range of each file's documents. A path is
/// a prefix, or either of the two files. Token files are mapped, not read.
///
/// Problems: those of find_files; `missing-file` if one of the two is missing; `bad-index` if an index is broken or
/// refers to bytes beyond the .bin file; `bad-value` for a split; `empty-data`; `sequence-too-long`. An id beyond the
/// model's vocabulary ends the run when it is read.
std::unique_ptr<Dataset> open_megatron(const config::MegatronDatasetConfig& config, const DatasetContext& context,
                                       Diagnostics& problems);

}  // namespace automodel::data
