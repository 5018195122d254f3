// Placement of stages on ranks.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "schedule/action.h"

namespace automodel::schedule {

enum class PlacementStyle {
  kLoop,  ///< stage s on rank s % ranks: every pass over the ranks has the same direction
  kV,     ///< zigzag, 0 1 2 3 3 2 1 0 0 1 ...: the last rank of a pass is the first of the next
};

/// A map from stages to ranks. Any map is allowed, even with ranks without a stage; requirements of a schedule are
/// checked elsewhere.
class Placement {
 public:
  Placement() = default;
  /// `rank_of_stage[s]` in 0 .. ranks-1.
  Placement(int ranks, std::vector<int> rank_of_stage);

  int ranks() const { return static_cast<int>(stages_of_rank_.size()); }
  int stages() const { return static_cast<int>(rank_of_stage_.size()); }
  int rank_of(Stage stage) const { return rank_of_stage_[stage.at()]; }
  const std::vector<int>& rank_of_stage() const { return rank_of_stage_; }
  /// Ascending.
  const std::vector<Stage>& stages_of(int rank) const { return stages_of_rank_[static_cast<std::size_t>(rank)]; }
  /// The index of the stage among its rank's stages, from 0; in Megatron's terms, its model chunk.
  int local_index(Stage stage) const { return local_index_[stage.at()]; }
  bool operator==(const Placement&) const = default;

 private:
  std::vector<int> rank_of_stage_;
  std::vector<int> local_index_;
  std::vector<std::vector<Stage>> stages_of_rank_;
};

/// Rejects sizes below 1 or above the limits, and a V whose number of stages is not a multiple of the ranks.
Diagnostics check_placement(PlacementStyle style, int ranks, int stages);
/// The placement of a style; check_placement() must have passed. For ranks = 4, stages = 8 loop gives 0 1 2 3 0 1 2 3
/// and V gives 0 1 2 3 3 2 1 0 (torch.distributed.pipelining generate_stage_to_rank_mapping).
Placement make_placement(PlacementStyle style, int ranks, int stages);
/// The placement implied by a table; empty if a stage is on two ranks or on none (validate() reports which).
std::optional<Placement> infer_placement(const Schedule& schedule, int stages);

/// "loop", "v".
std::string_view name_of(PlacementStyle style);
/// "loop", "v", or "custom" if neither. One stage per rank counts as "loop".
std::string_view style_of(const Placement& placement);

}  // namespace automodel::schedule
