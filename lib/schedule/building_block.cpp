#include "schedule/building_block.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "base/error.h"

namespace automodel::schedule {
namespace {

class Squeeze {
 public:
  Squeeze(const BuildingBlock& block, const Workload& work)
      : block_(block),
        work_(work),
        stages_(work.stages()),
        ranks_(static_cast<std::size_t>(work.ranks())),
        done_(3 * static_cast<std::size_t>(stages_), 0),
        ahead_(done_.size(), 0),
        known_(2 * static_cast<std::size_t>(stages_), 0),
        ready_(known_.size() * static_cast<std::size_t>(work.microbatches), 0),
        order_(ranks_.size()) {
    known_[0] = work.microbatches;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].turns = turns_of(static_cast<int>(rank));
      ranks_[rank].forwards_left = static_cast<int>(ranks_[rank].turns.size() / 2);
      memory_ = std::max(memory_, peak_of_turns(ranks_[rank].turns));
      order_[rank].reserve(3 * ranks_[rank].turns.size() / 2);
      events_.emplace(0, rank);
    }
    memory_ = std::max(memory_, work.memory);
  }

  CompactOrder run() {
    while (!events_.empty()) {
      const auto [now, rank] = events_.top();
      events_.pop();
      if (ranks_[rank].free_at <= now) act(rank, now);
    }
    for (const RankState& rank : ranks_)
      AUTOMODEL_CHECK(rank.forwards_left == 0 && rank.next == rank.turns.size(), "a building block that does not end");
    return std::move(order_);
  }

 private:
  struct RankState {
    CompactRow turns = {};  // F and I in the block's order
    std::size_t next = 0;   // index of the next turn
    Units free_at = 0;
    Units held = 0;
    int forwards_left = 0;
  };

  CompactRow turns_of(int rank) const {
    std::vector<std::pair<Units, Step>> timed;
    for (const Stage stage : work_.placement.stages_of(rank))
      for (int mb = 0; mb < work_.microbatches; ++mb) {
        timed.emplace_back(block_.forward[stage.at()] + mb * block_.interval, static_cast<Step>(stage.value));
        timed.emplace_back(block_.backward_input[stage.at()] + mb * block_.interval,
                           static_cast<Step>(stages_ + stage.value));
      }
    std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    CompactRow turns;
    turns.reserve(timed.size());
    for (const auto& turn : timed) turns.push_back(turn.second);
    return turns;
  }

  bool is_forward(Step step) const { return step < stages_; }
  std::size_t stage_of(Step step) const { return static_cast<std::size_t>(step % stages_); }
  /// What a turn adds to the memory held if every W directly follows its I.
  Units held_by(Step turn) const {
    return is_forward(turn) ? work_.activation[stage_of(turn)] : -work_.activation[stage_of(turn)];
  }
  Units peak_of_turns(const CompactRow& turns) const {
    Units held = 0;
    Units peak = 0;
    for (const Step turn : turns) peak = std::max(peak, held += held_by(turn));
    return peak;
  }
  std::size_t slot(Step step, int microbatch) const {
    return static_cast<std::size_t>(step) * static_cast<std::size_t>(work_.microbatches) +
           static_cast<std::size_t>(microbatch);
  }
  /// When the data of the stage's next F or I is there; kNoLimit if that is not known yet.
  Units ready_at(Step step) const {
    const int microbatch = done_[step];
    if (microbatch == work_.microbatches || known_[step] <= microbatch) return kNoLimit;
    if (!is_forward(step) && done_[stage_of(step)] <= microbatch) return kNoLimit;
    return ready_[slot(step, microbatch)];
  }

  /// Lets a free rank start one step, or registers when to look again.
  void act(std::size_t rank, Units now) {
    RankState& state = ranks_[rank];
    for (; state.next < state.turns.size() && ahead_[state.turns[state.next]] > 0; ++state.next)
      --ahead_[state.turns[state.next]];
    Units wake = kNoLimit;
    if (state.next < state.turns.size()) {
      const Step turn = state.turns[state.next];
      const bool fits = !is_forward(turn) || state.held + work_.activation[stage_of(turn)] <= memory_;
      const Units at = fits ? ready_at(turn) : kNoLimit;
      if (at <= now) {
        ++state.next;
        return start(turn, rank, now);
      }
      wake = at;
      if (state.forwards_left == 0 && drain(rank, now, wake)) return;
      if (early_forward(rank, turn, now, wake)) return;
    }
    if (const int weight = next_weight(static_cast<int>(rank)); weight >= 0)
      return start(static_cast<Step>(weight), rank, now);
    if (wake < kNoLimit) events_.emplace(wake, rank);
  }

  /// Starts whichever input gradient is there.
  bool drain(std::size_t rank, Units now, Units& wake) {
    int best = -1;
    Units due = kNoLimit;
    for (const Stage stage : work_.placement.stages_of(static_cast<int>(rank))) {
      const auto step = static_cast<Step>(stages_ + stage.value);
      const Units at = ready_at(step);
      const Units turn = block_.backward_input[stage.at()] + done_[step] * block_.interval;
      wake = std::min(wake, std::max(at, now));
      if (at > now || turn >= due) continue;
      best = step;
      due = turn;
    }
    if (best < 0) return false;
    ++ahead_[static_cast<std::size_t>(best)];
    start(static_cast<Step>(best), rank, now);
    return true;
  }

  /// Starts a forward of the rank's first stage before its turn if every later turn up to its own still fits.
  bool early_forward(std::size_t rank, Step turn, Units now, Units& wake) {
    RankState& state = ranks_[rank];
    const auto first = static_cast<Step>(work_.placement.stages_of(static_cast<int>(rank)).front().value);
    if (!block_.early_forwards || first == turn) return false;
    const Units at = ready_at(first);
    if (at == kNoLimit || state.held + work_.activation[first] > memory_) return false;
    Units held = state.held + work_.activation[first];
    for (const Stage stage : work_.placement.stages_of(static_cast<int>(rank)))
      held -= work_.kept[stage.at()] * (done_[static_cast<std::size_t>(stages_ + stage.value)] -
                                        done_[static_cast<std::size_t>(2 * stages_ + stage.value)]);
    int skip = ahead_[first];
    for (std::size_t i = state.next; i < state.turns.size(); ++i) {
      if (state.turns[i] == first && skip-- <= 0) break;
      if (state.turns[i] == first) continue;
      held += held_by(state.turns[i]);
      if (held > memory_) return false;
    }
    if (at > now) {
      wake = std::min(wake, at);
      return false;
    }
    ++ahead_[first];
    start(first, rank, now);
    return true;
  }

  /// The W of the earliest microbatch; -1 if none waits.
  int next_weight(int rank) const {
    int best = -1;
    for (const Stage stage : work_.placement.stages_of(rank)) {
      const int step = 2 * stages_ + stage.value;
      const int microbatch = done_[static_cast<std::size_t>(step)];
      if (microbatch == done_[static_cast<std::size_t>(step - stages_)]) continue;
      if (best < 0 || microbatch <= done_[static_cast<std::size_t>(best)]) best = step;
    }
    return best;
  }

  void start(Step step, std::size_t rank, Units now) {
    RankState& state = ranks_[rank];
    const std::size_t stage = stage_of(step);
    const int microbatch = done_[step]++;
    order_[rank].push_back(step);
    const auto stages = static_cast<std::size_t>(stages_);
    if (is_forward(step)) {
      state.held += work_.activation[stage];
      --state.forwards_left;
      state.free_at = now + work_.forward[stage];
      const bool last = stage + 1 == stages;
      arrive(static_cast<Step>(last ? stages + stage : stage + 1), microbatch,
             state.free_at + (last ? 0 : work_.message[stage]));
    } else if (step < 2 * stages_) {
      state.held -= work_.activation[stage] - work_.kept[stage];
      state.free_at = now + work_.backward_input[stage];
      if (stage > 0)
        arrive(static_cast<Step>(stages + stage - 1), microbatch, state.free_at + work_.message[stage - 1]);
    } else {
      state.held -= work_.kept[stage];
      state.free_at = now + work_.backward_weight[stage];
    }
    events_.emplace(state.free_at, rank);
  }
  void arrive(Step step, int microbatch, Units at) {
    ready_[slot(step, microbatch)] = at;
    known_[step] = microbatch + 1;
    events_.emplace(at, static_cast<std::size_t>(work_.placement.rank_of(Stage{step % stages_})));
  }

  using Event = std::pair<Units, std::size_t>;  // when a rank may have something to do
  const BuildingBlock& block_;
  const Workload& work_;
  int stages_;
  Units memory_ = 0;
  std::vector<RankState> ranks_;
  std::vector<int> done_;     // by step: microbatches started
  std::vector<int> ahead_;    // by step: of those, how many before their turn
  std::vector<int> known_;    // by F or I: microbatches whose data has a time
  std::vector<Units> ready_;  // by F or I and microbatch
  CompactOrder order_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

CompactOrder squeeze(const BuildingBlock& block, const Workload& workload) {
  return Squeeze(block, workload).run();
}

}  // namespace automodel::schedule
