// Rows of random tokens and random lengths.
#pragma once

#include <memory>

#include "data/open_dataset.h"

namespace automodel::data {

/// The rows of NeMo AutoModel's build_unpacked_dataset: tokens from 2 to the vocabulary, then 1. Labels are the tokens
/// themselves, as there: position t is asked for its own token.
std::unique_ptr<Dataset> open_sentences(const config::SentencesDatasetConfig& config, const DatasetContext& context,
                                        Diagnostics& problems);

}  // namespace automodel::data
