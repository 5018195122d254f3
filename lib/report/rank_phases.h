// How each rank spent its steps, from ranks.jsonl.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

namespace automodel::report {

struct Column;

struct RankPhase {
  std::string_view key;  ///< in ranks.jsonl
  std::string_view title;
};
/// The rank's own work first, then its waiting.
inline constexpr std::array kRankPhases = {
    RankPhase{"data", "Waiting for the next batch"}, RankPhase{"compute", "Forward and backward passes"},
    RankPhase{"gradients", "Gradients after the passes"}, RankPhase{"optimizer", "Optimizer"},
    RankPhase{"waiting", "Waiting for other ranks"}};
inline constexpr std::size_t kOwnPhases = kRankPhases.size() - 1;

/// Seconds per step, as columns indexed by phase and rank.
using RankColumns = std::array<std::vector<Column>, kRankPhases.size()>;

/// Empty lists if there is no such file. Columns of ranks that are gone after a restart end there.
RankColumns read_ranks(const std::filesystem::path& file);

}  // namespace automodel::report
