#include "schedule/validate.h"

#include <cstdint>
#include <vector>

#include "schedule/problem_list.h"

namespace automodel::schedule {
namespace {

/// Actions seen for one (stage, microbatch).
enum Seen : std::uint8_t { kSeenF = 1, kSeenI = 2, kSeenW = 4, kSeenB = 8 };

class Validator {
 public:
  Validator(const Schedule& schedule, const Shape& shape, const Origin& origin, Purpose purpose)
      : schedule_(schedule), shape_(shape), purpose_(purpose), problems_(origin) {}

  Diagnostics run() {
    if (!sizes_ok()) return problems_.take();
    seen_.assign(shape_.pairs(), 0);
    rank_of_stage_.assign(static_cast<std::size_t>(shape_.stages), -1);
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank) visit_row(rank);
    // Missing actions are reported only if every action could be counted.
    if (!uncounted_) report_missing();
    return problems_.take();
  }

 private:
  bool sizes_ok() {
    if (shape_.ranks < 1 || shape_.stages < 1 || shape_.microbatches < 1 || shape_.ranks > kMaxRanks ||
        shape_.stages > kMaxStages || shape_.microbatches > kMaxMicrobatches ||
        static_cast<std::int64_t>(shape_.pairs()) > kMaxPairs) {
      problems_.whole("schedule-too-large",
                      fmt::format("a schedule of {} ranks, {} stages and {} microbatches cannot be checked",
                                  shape_.ranks, shape_.stages, shape_.microbatches),
                      fmt::format("at least one of each, at most {} ranks, {} stages, {} microbatches, and {} stages "
                                  "times microbatches",
                                  kMaxRanks, kMaxStages, kMaxMicrobatches, kMaxPairs));
      return false;
    }
    if (schedule_.size() == static_cast<std::size_t>(shape_.ranks)) return true;
    problems_.whole("schedule-ranks",
                    fmt::format("the schedule has {} row{} for {} pipeline rank{}", schedule_.size(),
                                schedule_.size() == 1 ? "" : "s", shape_.ranks, shape_.ranks == 1 ? "" : "s"),
                    "one row per rank; in a file every line counts, blank ones too");
    return false;
  }

  void visit_row(std::size_t rank) {
    bool idle = true;
    for (std::size_t step = 0; step < schedule_[rank].size(); ++step) {
      const Slot& slot = schedule_[rank][step];
      idle = idle && slot.is_bubble();
      // The halves of an overlap run together, so each is checked only against earlier slots.
      if (slot.is_overlap() && slot.actions()[0].stage() == slot.actions()[1].stage() &&
          slot.actions()[0].microbatch() == slot.actions()[1].microbatch())
        problems_.cell("schedule-order", rank, step, fmt::format("the backward of {} needs its forward", to_text(slot)),
                       "an overlap pairs the forward of one microbatch with the backward of another");
      for (const Action& action : slot.actions())
        if (in_range(action, rank, step) && is_compute(action.op())) count(action, rank, step);
    }
    if (idle)
      problems_.row("schedule-idle-rank", rank, "no actions",
                    "every rank has at least one stage; a blank line counts "
                    "as the row of a rank");
  }

  bool in_range(const Action& action, std::size_t rank, std::size_t step) {
    if (action.stage().value >= shape_.stages) {
      uncounted_ = true;
      problems_.cell("schedule-stage-range", rank, step,
                     fmt::format("{} names stage {}", to_text(action), action.stage().value),
                     fmt::format("there are {} stages, 0 to {}", shape_.stages, shape_.stages - 1));
      return false;
    }
    if (action.microbatch().value >= shape_.microbatches) {
      uncounted_ = true;
      problems_.cell("schedule-microbatch-range", rank, step,
                     fmt::format("{} names microbatch {}", to_text(action), action.microbatch().value),
                     fmt::format("there are {} microbatches, 0 to {}", shape_.microbatches, shape_.microbatches - 1));
      return false;
    }
    int& owner = rank_of_stage_[action.stage().at()];
    if (owner == static_cast<int>(rank)) return true;
    if (owner == -1) {
      owner = static_cast<int>(rank);
      return true;
    }
    uncounted_ = true;
    problems_.cell("schedule-stage-twice", rank, step,
                   fmt::format("{}: stage {} is also on rank {}", to_text(action), action.stage().value, owner),
                   "a stage lives on one rank");
    return false;
  }

  void count(const Action& action, std::size_t rank, std::size_t step) {
    std::uint8_t& seen = seen_[shape_.pair(action)];
    const auto wrong = [&](ProblemId id, const char* what) {
      problems_.cell(id, rank, step, fmt::format("{} {}", to_text(action), what),
                     "each microbatch goes through a stage once: F, then B, or I and later W");
    };
    if (purpose_ == Purpose::kEvaluation && action.op() != Op::kForward)
      return wrong("schedule-backward-in-evaluation", "in a table for evaluation");
    // A duplicate is not recorded, since that would only cause follow-up problems.
    if (action.op() == Op::kForward) {
      if ((seen & kSeenF) != 0) return wrong("schedule-duplicate", "appears twice");
      seen |= kSeenF;
    } else if (action.op() == Op::kBackwardWeight) {
      if ((seen & kSeenW) != 0) return wrong("schedule-duplicate", "appears twice");
      if ((seen & kSeenB) != 0) return wrong("schedule-duplicate", "after the full backward");
      if ((seen & kSeenI) == 0) wrong("schedule-order", "before its input gradient (I)");
      seen |= kSeenW;
    } else {
      if ((seen & (kSeenI | kSeenB)) != 0)
        return wrong("schedule-duplicate", "is a second backward of this microbatch");
      if ((seen & kSeenF) == 0) wrong("schedule-order", "before its forward");
      seen |= action.op() == Op::kFullBackward ? kSeenB : kSeenI;
    }
  }

  void report_missing() {
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const int rank = rank_of_stage_[static_cast<std::size_t>(stage)];
      if (rank == -1) {
        problems_.whole(
            "schedule-stages", fmt::format("stage {} is on no rank", stage),
            fmt::format("there are {} stages, and every one needs its forwards and backwards", shape_.stages));
        continue;
      }
      const auto missing = [&](const char* what, auto&& is_missing) {
        int first = -1;
        int number = 0;
        for (int mb = 0; mb < shape_.microbatches; ++mb)
          if (is_missing(seen_[shape_.pair(make_action(Op::kForward, stage, mb))]) && number++ == 0) first = mb;
        if (number == 0) return;
        problems_.row("schedule-missing", static_cast<std::size_t>(rank),
                      fmt::format("stage {} has no {} of microbatch {}{}", stage, what, first,
                                  number > 1 ? fmt::format(" and {} more", number - 1) : ""),
                      fmt::format("every stage needs all {} microbatches", shape_.microbatches));
      };
      missing("forward (F)", [](unsigned seen) { return (seen & kSeenF) == 0; });
      if (purpose_ == Purpose::kEvaluation) continue;
      missing("backward (B, or I and W)", [](unsigned seen) { return (seen & (kSeenI | kSeenB | kSeenW)) == 0; });
      missing("weight gradient (W)", [](unsigned seen) { return (seen & (kSeenI | kSeenW)) == kSeenI; });
    }
  }

  const Schedule& schedule_;
  const Shape& shape_;
  Purpose purpose_;
  ProblemList problems_;
  std::vector<std::uint8_t> seen_;
  std::vector<int> rank_of_stage_;
  bool uncounted_ = false;
};

}  // namespace

Diagnostics validate(const Schedule& schedule, const Shape& shape, const Origin& origin, Purpose purpose) {
  return Validator(schedule, shape, origin, purpose).run();
}

}  // namespace automodel::schedule
