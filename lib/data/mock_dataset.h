// Random tokens, for measuring speed and for trying a recipe without data.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// Sample k holds tokens k * seq_length ... of the stream "data/KEY" of the seed, uniform over the vocabulary; the last
/// position has no label. As NeMo AutoModel's mock dataset, whose rows also are seq_length tokens with seq_length - 1
/// labels.
std::unique_ptr<Dataset> open_mock(const config::MockDatasetConfig& config, const DatasetContext& context,
                                   Diagnostics& problems);

}  // namespace automodel::data
