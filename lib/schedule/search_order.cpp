#include "schedule/search_order.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "schedule/compact_order.h"
#include "schedule/generators.h"
#include "schedule/list_schedule.h"

namespace automodel::schedule {
namespace {

/// Steps placed while making starting points, and while improving them: about 0.1 and 0.4 seconds. The part that grows
/// with the size lets large pipelines have some hundred trials.
constexpr std::int64_t kListSteps = 2'000'000;
constexpr std::int64_t kTrialSteps = 60'000'000;
constexpr std::int64_t kMoreTrials = 3000;
constexpr std::int64_t kMostMoreSteps = 400'000'000;
constexpr std::size_t kStarts = 4;  // the best starting points are improved
constexpr std::size_t kFewestRules = 8;

struct FoundOrder {
  CompactOrder order = {};
  Units makespan = kNoLimit;
};

std::int64_t steps_of(const Workload& work) {
  return 3 * static_cast<std::int64_t>(work.shape().pairs());
}

/// Knuth's MMIX generator: the same numbers everywhere.
class Dice {
 public:
  std::size_t below(std::size_t limit) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(state_ >> 33U) % limit;
  }

 private:
  std::uint64_t state_ = 2025;
};

/// All rules; those that are good most often first, since large pipelines try only the first few.
std::vector<ListRule> list_rules() {
  std::vector<ListRule> rules;
  for (const bool give_way : {false, true})
    for (const int pace : {0, 3, 2, 4})
      for (const int patience : {0, 1, 2})
        for (const bool deep : {false, true})
          for (const int due : {-1, 3, 1, 0, 2, 4}) rules.push_back({due, patience, pace, deep, give_way});
  return rules;
}

bool fits_memory(const CompactOrder& order, const Workload& work) {
  std::vector<int> scratch;
  return std::all_of(order.begin(), order.end(), [&](const CompactRow& row) { return fits(row, work, scratch); });
}

/// The named schedules with the workload's placement that fit its memory.
std::vector<CompactOrder> named_orders(const Workload& work) {
  std::vector<CompactOrder> out;
  if (work.stages() % work.ranks() != 0) return out;
  const Request request{
      .ranks = work.ranks(), .stages_per_rank = work.stages() / work.ranks(), .microbatches = work.microbatches};
  for (const Generator& generator : generators()) {
    if (generator.generate == nullptr || !check_request(generator, request).empty()) continue;
    if (make_placement(generator.placement, work.ranks(), work.stages()) != work.placement) continue;
    auto order = to_compact(generate(generator, request), work.stages());
    if (fits_memory(order, work)) out.push_back(std::move(order));
  }
  return out;
}

/// Nobody waits for the input gradient of the first stage, so where its two gradients follow each other they are one
/// action, which keeps nothing for later. On other stages the gradient that the stage before waits for leaves earlier
/// if they are apart.
Schedule with_joined_gradients(Schedule schedule) {
  for (Row& row : schedule) {
    Row joined;
    for (Slot& slot : row) {
      const Action now = slot.actions().front();
      const Action* before = joined.empty() ? nullptr : &joined.back().actions().front();
      if (before != nullptr && now.stage().value == 0 &&
          *before == Action(Op::kBackwardInput, now.stage(), now.microbatch()) && now.op() == Op::kBackwardWeight)
        joined.back() = Slot(Action(Op::kFullBackward, now.stage(), now.microbatch()));
      else
        joined.push_back(std::move(slot));
    }
    row = std::move(joined);
  }
  return schedule;
}

/// Changes one row at a time, where the critical path waits for the rank: a step moves before what holds it up, or what
/// holds it up moves behind. Trials slightly longer than the best one are kept, less and less so (record-to-record
/// travel), which leaves local optima without depending on floating-point numbers.
class LocalSearch {
 public:
  LocalSearch(const Workload& work, Units bound) : work_(work), bound_(bound), clock_(work) {}

  FoundOrder run(FoundOrder start, std::int64_t trials) {
    FoundOrder best = start;
    FoundOrder now = std::move(start);
    now.makespan = clock_.run(now.order);
    clock_.waiting_for_rank(now.order, places_);
    for (std::int64_t trial = 0; trial < trials && best.makespan > bound_ && !places_.empty(); ++trial) {
      const auto [rank, index] = places_[dice_.below(places_.size())];
      CompactRow& row = now.order[rank];
      const auto move = draw(index, row.size());
      if (!move || row[move->first] == row[move->second]) continue;
      shift(row, move->first, move->second);
      const Units makespan = fits(row, work_, scratch_) ? clock_.run(now.order) : kNoLimit;
      if (makespan <= std::max(now.makespan, best.makespan + slack(best.makespan, trial, trials)) &&
          makespan < kNoLimit) {
        now.makespan = makespan;
        clock_.waiting_for_rank(now.order, places_);
        if (makespan < best.makespan) best = now;
      } else {
        shift(row, move->second, move->first);
      }
    }
    return best;
  }

 private:
  using Move = std::pair<std::size_t, std::size_t>;  // from, to
  static constexpr Units kSlack = 60;                // of the makespan, at the start

  /// Mostly short moves: they are allowed more often and change less.
  std::optional<Move> draw(std::size_t index, std::size_t size) {
    const std::size_t distance = 1 + dice_.below(dice_.below(2) == 0 ? 9 : 3);
    if (dice_.below(2) == 0) {
      if (distance > index) return std::nullopt;
      return Move{index, index - distance};
    }
    if (index - 1 + distance >= size) return std::nullopt;
    return Move{index - 1, index - 1 + distance};
  }
  static void shift(CompactRow& row, std::size_t from, std::size_t to) {
    const auto at = [&](std::size_t i) { return row.begin() + static_cast<std::ptrdiff_t>(i); };
    if (from > to)
      std::rotate(at(to), at(from), at(from + 1));
    else
      std::rotate(at(from), at(from + 1), at(to + 1));
  }
  Units slack(Units best, std::int64_t trial, std::int64_t trials) {
    const Units most = best / kSlack * (trials - trial) / trials;
    return dice_.below(4) == 0 ? most : most / 4;
  }

  const Workload& work_;
  Units bound_;
  OrderClock clock_;
  Dice dice_;
  std::vector<OrderClock::Place> places_;
  std::vector<int> scratch_;
};

/// The best starting points first; of equal ones, the one made first.
std::vector<FoundOrder> starting_points(const Workload& work, Units bound) {
  OrderClock clock(work);
  std::vector<FoundOrder> out;
  const auto add = [&](CompactOrder order) {
    const Units makespan = clock.run(order);
    if (makespan == kNoLimit) return;
    const auto place = std::upper_bound(out.begin(), out.end(), makespan,
                                        [](Units value, const FoundOrder& found) { return value < found.makespan; });
    if (place == out.end() && out.size() == kStarts) return;
    const bool known = place != out.begin() && (place - 1)->makespan == makespan && (place - 1)->order == order;
    if (!known) out.insert(place, {std::move(order), makespan});
    if (out.size() > kStarts) out.pop_back();
  };
  for (auto& order : named_orders(work)) add(std::move(order));
  auto rules = list_rules();
  rules.resize(std::min(rules.size(), std::max(kFewestRules, static_cast<std::size_t>(kListSteps / steps_of(work)))));
  for (const ListRule& rule : rules) {
    if (!out.empty() && out.front().makespan <= bound) break;
    add(list_schedule(rule, work));
  }
  return out;
}

}  // namespace

Schedule search_order(const Workload& work) {
  AUTOMODEL_CHECK(work.memory >= least_memory(work), "a limit of memory that one microbatch exceeds");
  const Units bound = lower_bound(work);
  const auto starts = starting_points(work, bound);
  AUTOMODEL_CHECK(!starts.empty(), "list scheduling always ends");
  const std::int64_t steps = steps_of(work);
  const std::int64_t trials = (kTrialSteps + std::min(kMoreTrials * steps, kMostMoreSteps)) / steps;
  // Large pipelines spend the trials on the best start: a few hundred each would not change any.
  const std::size_t improved = steps > kTrialSteps / kMoreTrials ? 1 : starts.size();
  FoundOrder best = starts.front();
  LocalSearch search(work, bound);
  for (std::size_t i = 0; i < improved && best.makespan > bound; ++i) {
    auto found = search.run(starts[i], trials / static_cast<std::int64_t>(improved));
    if (found.makespan < best.makespan) best = std::move(found);
  }
  return with_joined_gradients(to_schedule(best.order, work.stages()));
}

}  // namespace automodel::schedule
