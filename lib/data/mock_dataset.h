// Random tokens, for benchmarks and for trying a recipe without data.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// Sample k is tokens [k * seq_length, (k + 1) * seq_length) of the seed's random stream "data/KEY", uniform over the
/// vocabulary; the last position has no label. Same shape as NeMo AutoModel's mock dataset, whose rows also have
/// seq_length tokens and seq_length - 1 labels.
std::unique_ptr<Dataset> open_mock(const config::MockDatasetConfig& config, const DatasetContext& context,
                                   Diagnostics& problems);

}  // namespace automodel::data
