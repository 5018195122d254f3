// Detects ranks that slow down the others.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/fault_tolerance_config.h"
#include "train/phase_clock.h"

namespace automodel::train {

/// What is known about a rank before the run.
struct RankPlace {
  int pp = 0;  ///< stage
  std::string host = {};
  double planned = 1;  ///< planned compute time; only ratios count
};

struct SlowRank {
  int rank = 0;
  StepPhase phase = StepPhase::kCompute;  ///< in which it loses the most time
  double seconds = 0;                     ///< of its own work per step
  double usual = 0;                       ///< the same, typical of the others
};

/// Compares the time that ranks spend on their own work; total step times are equal, because all wait for the slowest.
/// A rank is compared with those of its stage or, if it is alone there, with all ranks, in proportion to planned times.
class SlowRanks {
 public:
  SlowRanks(const config::SlowRankConfig& config, std::vector<RankPlace> ranks);

  /// `seconds`: each rank's phases over a window. Returns ranks that are slow and were not returned before.
  std::vector<SlowRank> judge(const std::vector<PhaseSeconds>& seconds);
  /// A message such as "rank 3 (host b) is slow: 0.31 s of its own work in a step, the others 0.11 s; most of it in
  /// compute".
  std::string text_of(const SlowRank& slow) const;
  const RankPlace& place_of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

 private:
  config::SlowRankConfig config_;
  std::vector<RankPlace> ranks_;
  std::set<int> named_ = {};
};

}  // namespace automodel::train
