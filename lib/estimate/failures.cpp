#include "estimate/failures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/random.h"
#include "estimate/state_bytes.h"

namespace automodel::estimate {
namespace {

constexpr double kDay = 86400, kYear = 365.25 * kDay;
constexpr double kMonth = 30 * kDay;
constexpr double kGiveUp = 20;         // times the run's undisturbed time and a repair
constexpr double kMostFailures = 1e5;  // of one run
constexpr double kFailures = 20000;    // over all trials
constexpr double kLeastTrials = 10, kMostTrials = 1000;
constexpr int kMostSpares = 1024;
constexpr double kWorth = 0.001;  // of goodput: what another spare host must add

bool takes_host(FailureKind kind) {
  return kind == FailureKind::kGpu || kind == FailureKind::kHost;
}
/// A rank that is killed, or stops with an error, is noticed at once.
bool noticed_late(FailureKind kind) {
  return kind == FailureKind::kHost || kind == FailureKind::kNetwork;
}

/// Seconds that saves add to a step of `step` seconds on average: one waits until the one before is complete.
double saving(const Saves& saves, double step) {
  if (saves.every == 0) return 0;
  const auto every = static_cast<double>(saves.every);
  return (saves.waiting + std::max(0.0, saves.background - every * step)) / every;
}

/// One simulated run.
class Trial {
 public:
  Trial(const FailingRun& run, std::uint64_t number)
      : run_(run), random_(number, "failures"), up_(run.hosts + run.spares) {}

  RunOutcome simulate() {
    Pace pace{run_.hosts, run_.step};
    while (true) {
      const double each = pace.step + saving(run_.checkpoints, pace.step) + saving(run_.copies, pace.step);
      const double left = static_cast<double>(run_.steps - step_) * each, until = next_failure(pace.hosts);
      if (until >= left) {
        count_steps(run_.steps - step_, pace, each);
        time_ += left;
        break;
      }
      time_ += until;
      run_until_failure(until, pace, each);
      const auto next = restart(pace.hosts);
      if (!next || hopeless()) {
        out_.ends = false;
        break;
      }
      pace = *next;
    }
    out_.total = out_.end.middle = time_;
    out_.goodput = static_cast<double>(step_) * run_.step / time_;
    return out_;
  }

 private:
  bool hopeless() const {
    const double undisturbed = static_cast<double>(run_.steps) * run_.step;
    return time_ > kGiveUp * (undisturbed + run_.repair) || out_.mean_interruptions > kMostFailures;
  }
  double uniform() { return (static_cast<double>(random_.bits64(drawn_++) >> 11) + 0.5) * 0x1p-53; }
  double next_failure(int hosts) {
    const double rate = run_.rate() * hosts / run_.hosts;
    return rate > 0 ? -std::log(uniform()) / rate : std::numeric_limits<double>::infinity();
  }
  FailureKind kind() {
    double at = uniform() * std::accumulate(run_.rates.begin(), run_.rates.end(), 0.0);
    for (std::size_t i = 0; i + 1 < kFailureKinds; ++i) {
      if (at < run_.rates[i]) return static_cast<FailureKind>(i);
      at -= run_.rates[i];
    }
    return static_cast<FailureKind>(kFailureKinds - 1);
  }

  void count_steps(std::int64_t steps, const Pace& pace, double each) {
    const auto made = static_cast<double>(steps);
    out_.saving += made * (each - pace.step);
    out_.slower += made * (pace.step - run_.step);
    step_ += steps;
  }

  /// The newest step of `saves` that is complete `seconds` after the run went on from step_; `before`: the one until
  /// now.
  std::int64_t complete(const Saves& saves, std::int64_t before, double seconds, double each) const {
    if (saves.every == 0) return before;
    const double reached = static_cast<double>(step_) + (seconds - saves.background) / each;
    const auto step = static_cast<std::int64_t>(std::floor(reached / static_cast<double>(saves.every))) * saves.every;
    return std::max(before, step);
  }

  void run_until_failure(double seconds, const Pace& pace, double each) {
    checkpoint_ = complete(run_.checkpoints, checkpoint_, seconds, each);
    copy_ = complete(run_.copies, copy_, seconds, each);
    const auto kept = std::max(checkpoint_, copy_);
    // The newest save may be older than the step that the run went on from, whose copies are lost: see restart().
    const auto made = std::max<std::int64_t>(0, kept - step_);
    count_steps(made, pace, each);
    out_.again += seconds - static_cast<double>(made) * each;
  }

  void lose_host() {
    --up_;
    repaired_.insert(time_ + run_.repair);
  }
  void take_back() {
    while (!repaired_.empty() && *repaired_.begin() <= time_) {
      repaired_.erase(repaired_.begin());
      ++up_;
    }
  }

  /// From a failure until the run goes on; failures on the way begin it anew.
  std::optional<Pace> restart(int hosts) {
    bool lost_before = false;
    for (bool again = true; again;) {
      ++out_.mean_interruptions;
      const auto what = kind();
      if (takes_host(what)) {
        // A copy is on two hosts, the second the next one: a loss takes it if the other has just been lost too.
        if (run_.hosts == 1 || (lost_before && uniform() * (run_.hosts - 1) < 2)) copy_ = 0;
        lose_host();
        lost_before = true;
      }
      const bool from_copy = copy_ > checkpoint_;
      const double down =
          (noticed_late(what) ? run_.timeout : 0) + run_.restart + (from_copy ? run_.copies : run_.checkpoints).reading;
      const double until = next_failure(hosts);
      again = until < down;
      time_ += std::min(until, down);
      out_.restarting += std::min(until, down);
      if (hopeless()) return std::nullopt;
    }
    if (const auto kept = std::max(checkpoint_, copy_); kept < step_) {  // steps that only a lost copy had
      const double lost = static_cast<double>(step_ - kept) * run_.step;
      out_.again += lost;
      step_ = kept;
    }
    take_back();
    if (up_ >= run_.hosts) return Pace{run_.hosts, run_.step};
    if (run_.fewer)
      if (const auto pace = run_.fewer(up_)) return pace;
    while (up_ < run_.hosts) {
      const double back = *repaired_.begin();
      out_.waiting += back - time_;
      time_ = back;
      take_back();
    }
    return Pace{run_.hosts, run_.step};
  }

  const FailingRun& run_;
  RandomStream random_;
  std::uint64_t drawn_ = 0;
  double time_ = 0;
  std::int64_t step_ = 0, checkpoint_ = 0, copy_ = 0;
  int up_;
  std::multiset<double> repaired_ = {};
  RunOutcome out_ = {};
};

constexpr std::array kMeans = {
    &RunOutcome::mean_interruptions, &RunOutcome::total,   &RunOutcome::saving, &RunOutcome::again,
    &RunOutcome::restarting,         &RunOutcome::waiting, &RunOutcome::slower};

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(place);
    const auto high = std::min(low + 1, values.size() - 1);
    return values[low] + (place - static_cast<double>(low)) * (values[high] - values[low]);
  };
  return {at(0.1), at(0.5), at(0.9)};
}

/// 1, 2, 5, 10, 15, 20, 30, 50, 70, 100, ...
std::vector<std::int64_t> round_numbers(std::int64_t most) {
  std::vector<std::int64_t> out;
  for (std::int64_t power = 1; power <= most; power *= 10)
    for (const double factor : {1.0, 1.5, 2.0, 3.0, 5.0, 7.0})
      if (const auto number = std::llround(factor * static_cast<double>(power));
          number <= most && (out.empty() || number > out.back()))
        out.push_back(number);
  return out;
}

Saves checkpoints_of(const config::Recipe& recipe, const EstimatedPlan& whole, int hosts, bool background) {
  const double all = saved_bytes(whole) / (hosts * recipe.hardware->storage_bandwidth() * 1e9);
  const double copied = whole.cuda ? saved_bytes(whole) / whole.mesh.world_size() / host_link() : 0;
  Saves out{.waiting = copied + (background ? 0 : all), .background = background ? all : 0, .reading = all};
  if (recipe.checkpoint->enabled()) out.every = recipe.step_scheduler->ckpt_every_steps().value_or(0);
  return out;
}

Saves saves_of(const CopyPlan& copies) {
  // A restart reads what a copy has written, and hosts send each other the parts that they lack.
  return {.every = copies.every,
          .waiting = copies.waiting,
          .background = copies.background,
          .reading = copies.waiting + copies.background};
}

FailingRun run_of(const config::Recipe& recipe, const EstimatedPlan& whole, int per_host) {
  const auto& estimate = *whole.estimate;
  const auto& failures = recipe.hardware->failures();
  FailingRun out{.hosts = whole.mesh.world_size() / per_host,
                 .spares = failures.spare_hosts(),
                 .step = estimate.time.step - estimate.time.copies};
  out.rates = {whole.cuda ? failures.gpu() * per_host / kYear : 0, failures.host() / kYear, failures.network() / kYear,
               failures.software() / kYear};
  out.steps =
      estimate.steps.value_or(0) > 0 ? *estimate.steps : static_cast<std::int64_t>(std::ceil(kMonth / out.step));
  out.checkpoints = checkpoints_of(recipe, whole, out.hosts, recipe.checkpoint->is_async());
  if (estimate.copies) out.copies = saves_of(*estimate.copies);
  out.restart = 60 * failures.restart_minutes();
  out.timeout = 60 * recipe.dist_env->timeout_minutes().value_or(10);
  out.repair = 3600 * failures.repair_hours();
  return out;
}

}  // namespace

double FailingRun::rate() const {
  return hosts * std::accumulate(rates.begin(), rates.end(), 0.0);
}

RunOutcome simulate_failures(const FailingRun& run, int trials) {
  if (trials == 0) {
    const double expected = run.rate() * static_cast<double>(run.steps) * run.step;
    trials = static_cast<int>(std::clamp(kFailures / std::max(1.0, expected), kLeastTrials, kMostTrials));
  }
  RunOutcome out;
  std::vector<double> ends, interruptions;
  double useful = 0;
  for (int i = 0; i < trials && out.ends; ++i) {
    const auto one = Trial(run, static_cast<std::uint64_t>(i)).simulate();
    out.ends = one.ends;
    ends.push_back(one.total);
    interruptions.push_back(one.mean_interruptions);
    useful += one.goodput * one.total;
    for (const auto member : kMeans) out.*member += one.*member;
  }
  for (const auto member : kMeans) out.*member /= static_cast<double>(ends.size());
  out.goodput = useful / static_cast<double>(ends.size()) / out.total;
  out.end = spread_of(std::move(ends));
  out.interruptions = spread_of(std::move(interruptions));
  return out;
}

std::pair<std::int64_t, RunOutcome> best_interval(FailingRun run, Saves FailingRun::*saves) {
  // Near the interval at which saving takes as long as the steps that a failure loses (Young 1974).
  const auto& section = run.*saves;
  const double young = std::sqrt(2 * std::max(section.waiting, 1e-3) / std::max(run.rate(), 1e-12)) / run.step;
  const double slowest = section.background / run.step;  // steps that a save in the background takes
  const auto numbers = round_numbers(run.steps);
  const double least = std::min(std::max(young / 5, slowest / 2), static_cast<double>(numbers.back()));
  const double most = 5 * std::max({young, slowest, 1.0});
  std::pair<std::int64_t, RunOutcome> best{0, {}};
  for (const auto every : numbers) {
    if (static_cast<double>(every) < least || static_cast<double>(every) > most) continue;
    (run.*saves).every = every;
    auto outcome = simulate_failures(run);
    if (best.first == 0 || outcome.goodput > best.second.goodput) best = {every, outcome};
  }
  return best;
}

SmallerPlans::SmallerPlans(const config::LoadedRecipe& loaded, const EstimatedPlan& whole, PlanRequest request,
                           int per_host, int least_ranks)
    : loaded_(loaded), whole_(whole), request_(std::move(request)), per_host_(per_host), least_(least_ranks) {}

const std::optional<SmallerPlan>& SmallerPlans::on_hosts(int hosts) {
  const auto known = plans_.find(hosts);
  if (known != plans_.end()) return known->second;
  return plans_[hosts] =
             plan_for_fewer(loaded_, whole_, {.plan = request_, .most = hosts * per_host_, .least = least_});
}

std::optional<Pace> SmallerPlans::pace(int hosts) {
  if (hosts < 1) return std::nullopt;
  // A plan for more hosts may use fewer than it was given; if there was none, there is none for fewer either.
  const std::optional<SmallerPlan>* found = nullptr;
  if (const auto next = plans_.lower_bound(hosts); next != plans_.end()) {
    const auto& plan = next->second;
    if (next->first == hosts || !plan || plan->plan.mesh.world_size() <= hosts * per_host_) found = &plan;
  }
  if (found == nullptr) found = &on_hosts(hosts);
  if (!*found || !(*found)->plan.estimate) return std::nullopt;
  const auto& plan = (*found)->plan;
  const auto& time = plan.estimate->time;
  return Pace{(plan.mesh.world_size() + per_host_ - 1) / per_host_, time.step - time.copies};
}

namespace {

/// What each change does alone, and all of them together.
void add_remedies(MonthPlan& month, const config::Recipe& recipe, const EstimatedPlan& whole) {
  const auto& run = month.run;
  const auto add = [&](std::string key, std::string value, const RunOutcome& outcome) {
    month.remedies.push_back({std::move(key), std::move(value), outcome});
  };
  auto all = run;
  if (recipe.checkpoint->enabled()) {
    const auto [every, outcome] = best_interval(run, &FailingRun::checkpoints);
    add("step_scheduler.ckpt_every_steps", std::to_string(every), outcome);
    if (!recipe.checkpoint->is_async()) {
      auto other = run;
      other.checkpoints = all.checkpoints = checkpoints_of(recipe, whole, run.hosts, true);
      add("checkpoint.is_async", "true", simulate_failures(other));
    }
    all.checkpoints.every = every;
    auto other = run;
    other.copies = all.copies = saves_of(copies_every(1, whole, whole.estimate->hardware));
    const auto [often, with] = best_interval(other, &FailingRun::copies);
    all.copies.every = often;
    add("checkpoint.memory_every_steps", std::to_string(often), with);
  }
  double before = -1;
  for (int spares = 0; spares <= kMostSpares; spares = spares == 0 ? 1 : 2 * spares) {
    auto other = run;
    other.spares = spares;
    const auto outcome = simulate_failures(other);
    if (outcome.goodput < before + kWorth) break;
    if (spares != run.spares) add("hardware.failures.spare_hosts", std::to_string(spares), outcome);
    all.spares = std::max(run.spares, spares);
    before = outcome.goodput;
  }
  add("all of these", "", simulate_failures(all));
}

}  // namespace

MonthPlan plan_month(const config::Recipe& recipe, const EstimatedPlan& whole, int per_host, SmallerPlans& plans) {
  MonthPlan out;
  out.run = run_of(recipe, whole, per_host);
  out.given_steps = whole.estimate->steps.value_or(0) > 0;
  if (recipe.fault_tolerance->max_restarts() > 0 && recipe.fault_tolerance->min_ranks())
    out.run.fewer = [&plans](int hosts) { return plans.pace(hosts); };
  out.outcome = simulate_failures(out.run);
  if (out.run.rate() > 0) add_remedies(out, recipe, whole);
  out.run.fewer = {};  // refers to `plans`
  return out;
}

}  // namespace automodel::estimate
