// Which stages run on which pipeline rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::plan {

/// kLoop: stage s on rank s mod pp. kV: two stages a rank, the second half in reverse, so that the first and the last
/// stage share rank 0.
enum class Placement : std::uint8_t { kLoop, kV };

/// "loop", "v".
std::string_view name_of(Placement placement);
std::optional<Placement> parse_placement(std::string_view text);

/// The stages of `pp_rank`, ascending. Problems: `indivisible` where `stages` is no multiple of `pp_size`,
/// `schedule-v-stages` where a V placement has other than two stages a rank, bad-value for a rank or size out of range.
std::optional<std::vector<int>> stage_ids_this_rank(int pp_rank, int pp_size, int stages, Placement placement,
                                                    Diagnostics& problems);

/// The rank that runs `stage`; for numbers that stage_ids_this_rank accepts.
int rank_of_stage(int stage, int pp_size, Placement placement);

}  // namespace automodel::plan
