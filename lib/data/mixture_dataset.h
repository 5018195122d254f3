// Several data sets mixed by weights: rows as they are interleaved, each part read from start to end and then again.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/open_dataset.h"

namespace automodel::data {

struct MixtureOptions {
  std::uint64_t seed = 42;
  bool shuffle = false;   ///< each part in random order, a new one every time that it is read; false: in its own
  std::int64_t rows = 0;  ///< of an epoch; 0: as many as all parts have together
};

/// Sample i is a function of the parts, the weights, the seed and i alone; i has no end.
std::unique_ptr<Dataset> mix(std::vector<std::pair<std::unique_ptr<Dataset>, double>> parts,
                             const MixtureOptions& options);

/// Null after adding the parts' problems, or `bad-value` if texts of two parts have different tokenizers.
std::unique_ptr<Dataset> open_mixture(const config::MixtureDatasetConfig& config, const DatasetContext& context,
                                      Diagnostics& problems);

}  // namespace automodel::data
