// Orders without microbatch numbers, and how long they take.
//
// All microbatches of a stage cost the same, so a stage may take them in turn: the k-th F, I and W of a stage belong to
// microbatch k. A row is then a word over F, I and W of its stages, which is small, and has no two spellings for the
// same table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "schedule/workload.h"

namespace automodel::schedule {

/// F, I or W of a stage: kind * stages + stage.
using Step = std::uint16_t;
static_assert(3 * kMaxStages <= 65536);
enum StepKind : int { kStepF = 0, kStepI = 1, kStepW = 2 };
using CompactRow = std::vector<Step>;
using CompactOrder = std::vector<CompactRow>;  ///< indexed by rank

Schedule to_schedule(const CompactOrder& order, int stages);
/// A full backward becomes I and W; an overlapped pair its forward and then its backward.
CompactOrder to_compact(const Schedule& schedule, int stages);

/// Whether a row does F, I and W of each microbatch in this order and never holds more than the rank's memory.
bool fits(const CompactRow& row, const Workload& workload, std::vector<int>& scratch);
/// The most that a row holds at once.
Units peak_of(const CompactRow& row, const Workload& workload);

/// Runs orders of one workload, each step as early as possible.
class OrderClock {
 public:
  explicit OrderClock(const Workload& workload);

  /// The end of the last step; kNoLimit if ranks wait for each other.
  Units run(const CompactOrder& order);

  /// A step, by rank and index in its row, that starts when its predecessor on the rank ends.
  using Place = std::pair<std::size_t, std::size_t>;
  /// The steps of one critical path of the last run, which must have ended, that wait for their own rank. Only moving
  /// one of these can shorten the run.
  void waiting_for_rank(const CompactOrder& order, std::vector<Place>& out) const;

 private:
  static constexpr int kNone = -1;
  struct StepCost {
    Units duration = 0;
    Units message = 0;  // between the step needed and this one
    int needs = kNone;  // the step of the same microbatch that must be done
    int wakes = kNone;  // the other rank that waits for this step
  };
  std::size_t at(std::size_t step, int microbatch) const {
    return step * static_cast<std::size_t>(microbatches_) + static_cast<std::size_t>(microbatch);
  }
  void advance(std::size_t rank, const CompactRow& row);

  const Workload& work_;
  int microbatches_;
  std::vector<StepCost> costs_;       // by step
  std::vector<int> rank_of_;          // by step
  std::vector<int> done_;             // by step: how many microbatches
  std::vector<Units> end_;            // by step and microbatch
  std::vector<std::uint32_t> where_;  // by step and microbatch: index in its row
  std::vector<std::size_t> next_;     // by rank
  std::vector<int> blocked_by_;       // by rank: a step, or kNone
  std::vector<Units> time_;           // by rank
  std::vector<std::vector<Units>> start_;
  std::vector<std::vector<int>> microbatch_;
  std::vector<std::size_t> runnable_;
};

}  // namespace automodel::schedule
