#include "schedule/compact_order.h"

#include <algorithm>
#include <array>

namespace automodel::schedule {
namespace {

constexpr std::array kStepOps = {Op::kForward, Op::kBackwardInput, Op::kBackwardWeight};

}  // namespace

Schedule to_schedule(const CompactOrder& order, int stages) {
  Schedule out(order.size());
  std::vector<int> done(3 * static_cast<std::size_t>(stages), 0);
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    out[rank].reserve(order[rank].size());
    for (const Step step : order[rank])
      out[rank].emplace_back(
          make_action(kStepOps[static_cast<std::size_t>(step / stages)], step % stages, done[step]++));
  }
  return out;
}

CompactOrder to_compact(const Schedule& schedule, int stages) {
  CompactOrder out(schedule.size());
  for (std::size_t rank = 0; rank < schedule.size(); ++rank)
    for (const Slot& slot : schedule[rank])
      for (const Action& action : slot.actions()) {
        const auto add = [&](int kind) {
          out[rank].push_back(static_cast<Step>(kind * stages + action.stage().value));
        };
        if (action.op() == Op::kForward) add(kStepF);
        if (action.op() == Op::kBackwardInput || action.op() == Op::kFullBackward) add(kStepI);
        if (action.op() == Op::kBackwardWeight || action.op() == Op::kFullBackward) add(kStepW);
      }
  return out;
}

bool fits(const CompactRow& row, const Workload& work, std::vector<int>& scratch) {
  const int stages = work.stages();
  scratch.assign(3 * static_cast<std::size_t>(stages), 0);
  if (row.empty()) return true;
  const Units room = work.room(work.placement.rank_of(Stage{row.front() % stages}));
  Units held = 0;
  for (const Step step : row) {
    const int done = ++scratch[step];
    const auto stage = static_cast<std::size_t>(step % stages);
    if (step < stages) {
      held += work.activation[stage];
      if (held > room) return false;
    } else {
      if (done > scratch[step - static_cast<std::size_t>(stages)]) return false;
      held -= step < 2 * stages ? work.activation[stage] - work.kept[stage] : work.kept[stage];
    }
  }
  return true;
}

Units peak_of(const CompactRow& row, const Workload& work) {
  const int stages = work.stages();
  Units held = 0;
  Units peak = 0;
  for (const Step step : row) {
    const auto stage = static_cast<std::size_t>(step % stages);
    if (step < stages)
      held += work.activation[stage];
    else
      held -= step < 2 * stages ? work.activation[stage] - work.kept[stage] : work.kept[stage];
    peak = std::max(peak, held);
  }
  return peak;
}

OrderClock::OrderClock(const Workload& work)
    : work_(work),
      microbatches_(work.microbatches),
      costs_(3 * static_cast<std::size_t>(work.stages())),
      rank_of_(costs_.size()),
      done_(costs_.size()),
      end_(costs_.size() * static_cast<std::size_t>(work.microbatches)),
      where_(end_.size()),
      next_(static_cast<std::size_t>(work.ranks())),
      blocked_by_(next_.size()),
      time_(next_.size()),
      start_(next_.size()),
      microbatch_(next_.size()) {
  const auto stages = static_cast<std::size_t>(work.stages());
  const auto rank = [&](std::size_t stage) { return work.placement.rank_of(Stage{static_cast<int>(stage)}); };
  for (std::size_t s = 0; s < stages; ++s) {
    StepCost& forward = costs_[s];
    StepCost& input = costs_[stages + s];
    StepCost& weight = costs_[2 * stages + s];
    forward.duration = work.forward[s];
    input.duration = work.backward_input[s];
    weight.duration = work.backward_weight[s];
    if (s > 0) forward = {forward.duration, work.message[s - 1], static_cast<int>(s - 1)};
    input.needs = static_cast<int>(s + 1 < stages ? stages + s + 1 : s);
    if (s + 1 < stages) input.message = work.message[s];
    weight.needs = static_cast<int>(stages + s);
    if (s + 1 < stages && rank(s + 1) != rank(s)) forward.wakes = rank(s + 1);
    if (s > 0 && rank(s - 1) != rank(s)) input.wakes = rank(s - 1);
    for (std::size_t kind = 0; kind < 3; ++kind) rank_of_[kind * stages + s] = rank(s);
  }
  for (std::size_t r = 0; r < next_.size(); ++r) {
    const std::size_t steps =
        3 * work.placement.stages_of(static_cast<int>(r)).size() * static_cast<std::size_t>(microbatches_);
    start_[r].resize(steps);
    microbatch_[r].resize(steps);
  }
}

Units OrderClock::run(const CompactOrder& order) {
  std::fill(done_.begin(), done_.end(), 0);
  std::fill(next_.begin(), next_.end(), 0);
  std::fill(time_.begin(), time_.end(), 0);
  std::fill(blocked_by_.begin(), blocked_by_.end(), kNone);
  runnable_.clear();
  for (std::size_t rank = order.size(); rank-- > 0;) runnable_.push_back(rank);
  while (!runnable_.empty()) {
    const std::size_t rank = runnable_.back();
    runnable_.pop_back();
    advance(rank, order[rank]);
  }
  Units makespan = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    if (next_[rank] < order[rank].size()) return kNoLimit;
    makespan = std::max(makespan, time_[rank]);
  }
  return makespan;
}

void OrderClock::advance(std::size_t rank, const CompactRow& row) {
  std::size_t next = next_[rank];
  Units time = time_[rank];
  for (; next < row.size(); ++next) {
    const Step step = row[next];
    const StepCost& cost = costs_[step];
    const int microbatch = done_[step];
    if (cost.needs != kNone) {
      const auto needs = static_cast<std::size_t>(cost.needs);
      if (done_[needs] <= microbatch) {
        blocked_by_[rank] = cost.needs;
        break;
      }
      time = std::max(time, end_[at(needs, microbatch)] + cost.message);
    }
    start_[rank][next] = time;
    microbatch_[rank][next] = microbatch;
    time += cost.duration;
    end_[at(step, microbatch)] = time;
    where_[at(step, microbatch)] = static_cast<std::uint32_t>(next);
    ++done_[step];
    if (cost.wakes == kNone) continue;
    const auto other = static_cast<std::size_t>(cost.wakes);
    if (blocked_by_[other] != step) continue;
    blocked_by_[other] = kNone;
    runnable_.push_back(other);
  }
  next_[rank] = next;
  time_[rank] = time;
}

void OrderClock::waiting_for_rank(const CompactOrder& order, std::vector<Place>& out) const {
  out.clear();
  auto rank = static_cast<std::size_t>(std::max_element(time_.begin(), time_.end()) - time_.begin());
  if (order[rank].empty()) return;
  std::size_t index = order[rank].size() - 1;
  while (true) {
    const Step step = order[rank][index];
    const Units start = start_[rank][index];
    if (start == 0) return;
    const bool waits_for_rank = index > 0 && end_[at(order[rank][index - 1], microbatch_[rank][index - 1])] == start;
    const int needs = costs_[step].needs;
    const bool waits_for_data =
        needs != kNone &&
        end_[at(static_cast<std::size_t>(needs), microbatch_[rank][index])] + costs_[step].message == start;
    if (waits_for_rank) out.emplace_back(rank, index);
    // Where both hold, the path may take either; alternating reaches more of the steps that matter.
    const bool follow_data = waits_for_data && (!waits_for_rank || (step & 1U) != 0);
    if (follow_data) {
      const int microbatch = microbatch_[rank][index];
      rank = static_cast<std::size_t>(rank_of_[static_cast<std::size_t>(needs)]);
      index = where_[at(static_cast<std::size_t>(needs), microbatch)];
    } else if (waits_for_rank) {
      --index;
    } else {
      return;
    }
  }
}

}  // namespace automodel::schedule
