// Several rows packed into one sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/diagnostic.h"
#include "config/data_config.h"
#include "data/dataset.h"

namespace automodel::data {

/// Packs of `packed_sequence_size` tokens. Each row is a segment of its pack: rows do not attend to each other, and
/// positions restart at 0, so the loss is the same as for separate rows. Rows are assigned to packs once, based on
/// their lengths, as NeMo AutoModel does. Under context parallelism each row of a thd pack is padded to a multiple of 2
/// cp_size. `key` is the section's recipe key. Null after `sequence-too-long` for a row that is longer than a pack and
/// must not be dropped, or `empty-data`.
std::shared_ptr<const Dataset> pack(std::shared_ptr<const Dataset> rows, const config::PackedSequenceConfig& config,
                                    std::int64_t cp_size, const std::string& key, Diagnostics& problems);

}  // namespace automodel::data
