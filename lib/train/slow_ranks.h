// Which rank holds the others up.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/fault_tolerance_config.h"
#include "train/phase_clock.h"

namespace automodel::train {

/// What is known of a rank before the run.
struct RankPlace {
  int pp = 0;  ///< stage
  std::string host = {};
  double planned = 1;  ///< share of a step that the plan gives its computations; only their ratios count
};

struct SlowRank {
  int rank = 0;
  StepPhase phase = StepPhase::kCompute;  ///< in which it loses most
  double seconds = 0;                     ///< of its own work in a step
  double usual = 0;                       ///< what that takes the others
};

/// Compares the own work of ranks: a step takes all of them equally long, because they wait for the slowest. A rank is
/// measured against those of its stage; where it is alone there, against all, by what the plan gives each.
class SlowRanks {
 public:
  SlowRanks(const config::SlowRankConfig& config, std::vector<RankPlace> ranks);

  /// `seconds` of each rank over a window. Those that are slow and were not named before.
  std::vector<SlowRank> judge(const std::vector<PhaseSeconds>& seconds);
  /// "rank 3 (host b) is slow: 0.31 s of its own work in a step, the others 0.11 s; most of it in compute".
  std::string text_of(const SlowRank& slow) const;
  const RankPlace& place_of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

 private:
  config::SlowRankConfig config_;
  std::vector<RankPlace> ranks_;
  std::set<int> named_ = {};
};

}  // namespace automodel::train
