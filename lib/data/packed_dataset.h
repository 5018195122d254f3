// Several rows in one sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/diagnostic.h"
#include "config/data_config.h"
#include "data/dataset.h"

namespace automodel::data {

/// Packs of `packed_sequence_size` tokens. Rows of a pack are segments of their own: they do not attend to each other,
/// and each has positions from 0, so that losses are those of the rows alone. Which rows stand in which pack is decided
/// once, from their lengths, as NeMo AutoModel decides it. Under context parallelism each
/// row of a thd pack is filled to a multiple of 2 cp_size. `key` is the section's recipe key. Null after
/// `sequence-too-long` for a row that is longer than a pack and not to be dropped, or `empty-data`.
std::shared_ptr<const Dataset> pack(std::shared_ptr<const Dataset> rows, const config::PackedSequenceConfig& config,
                                    std::int64_t cp_size, const std::string& key, Diagnostics& problems);

}  // namespace automodel::data
