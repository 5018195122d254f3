// Rows of random tokens with random lengths.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// The rows of NeMo AutoModel's build_unpacked_dataset: random tokens from 2 up to the vocabulary size, then 1. Labels
/// are the unshifted tokens, as there: position t predicts its own token.
std::unique_ptr<Dataset> open_sentences(const config::SentencesDatasetConfig& config, const DatasetContext& context,
                                        Diagnostics& problems);

}  // namespace automodel::data
