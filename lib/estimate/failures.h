// A long run whose parts fail now and then: how much of the time makes new steps, and what would make it more.
//
// Failures of each kind are a Poisson process whose rate is proportional to the hosts in use; the rest follows from the
// plan and from what `train` does after a failure. Random numbers are counter-based, so that the same recipe gives the
// same figures, and all variants of a run meet the same failures as long as they proceed alike.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "estimate/estimated_plan.h"
#include "estimate/fewer_ranks.h"

namespace automodel::estimate {

enum class FailureKind : std::uint8_t { kGpu, kHost, kNetwork, kSoftware };
constexpr std::size_t kFailureKinds = 4;

/// Saving the state: to checkpoints, or to copies in memory.
struct Saves {
  std::int64_t every = 0;  ///< steps; 0: never
  double waiting = 0;      ///< seconds that a save adds to its step
  double background = 0;   ///< seconds after that until it is complete
  double reading = 0;      ///< seconds until a restart has read it
};

/// What continues after a loss.
struct Pace {
  int hosts = 0;    ///< in use
  double step = 0;  ///< seconds, without saves
};

struct FailingRun {
  std::int64_t steps = 0;                        ///< of the run
  int hosts = 1;                                 ///< in use by the whole plan
  int spares = 0;                                ///< hosts
  double step = 0;                               ///< seconds with all hosts, without saves
  std::array<double, kFailureKinds> rates = {};  ///< failures per second and host in use
  Saves checkpoints = {}, copies = {};
  double restart = 0;  ///< seconds from noticing a failure until reading the state begins
  double timeout = 0;  ///< seconds until ranks notice that the network or a host is gone
  double repair = 0;   ///< seconds until a lost host is back
  /// How the run goes on with fewer hosts; without it, or if it has no answer, the run waits for a host.
  std::function<std::optional<Pace>(int hosts)> fewer = {};
  double rate() const;  ///< of all kinds with all hosts, per second
};

/// Quantiles over simulated runs.
struct Spread {
  double low = 0, middle = 0, high = 0;  ///< 10 %, 50 %, 90 %
};

/// Means over simulated runs; seconds.
struct RunOutcome {
  bool ends = true;    ///< false: some run made no more progress
  double goodput = 0;  ///< share of the time that it would take without failures, saves and copies
  Spread end = {};     ///< of the run
  Spread interruptions = {};
  double mean_interruptions = 0, total = 0;
  double saving = 0, again = 0, restarting = 0, waiting = 0, slower = 0;  ///< parts of the total
};

/// `trials` runs; 0: as many as make about 20,000 failures, from 10 to 1,000.
RunOutcome simulate_failures(const FailingRun& run, int trials = 0);

/// The interval between saves, in steps, with which the run ends soonest, and its outcome. `saves` is the member of
/// `run` whose interval is sought.
std::pair<std::int64_t, RunOutcome> best_interval(FailingRun run, Saves FailingRun::*saves);

/// Plans of a recipe for fewer hosts, each made once.
class SmallerPlans {
 public:
  SmallerPlans(const config::LoadedRecipe& loaded, const EstimatedPlan& whole, PlanRequest request, int per_host,
               int least_ranks);
  /// What a restart on this many hosts would run.
  const std::optional<SmallerPlan>& on_hosts(int hosts);
  /// The same, or a plan for fewer hosts that is known already.
  std::optional<Pace> pace(int hosts);

 private:
  const config::LoadedRecipe& loaded_;
  const EstimatedPlan& whole_;
  PlanRequest request_;
  int per_host_, least_;
  std::map<int, std::optional<SmallerPlan>> plans_ = {};
};

/// A change of the recipe, and what it does to a run with failures.
struct Remedy {
  std::string key = {}, value = {};
  RunOutcome outcome = {};
};

/// The run of a recipe, with failures.
struct MonthPlan {
  FailingRun run = {};
  bool given_steps = false;  ///< the recipe says how many; otherwise 30 days' worth of them
  RunOutcome outcome = {};
  std::vector<Remedy> remedies = {};  ///< each on its own, and last all of them; empty without failures
};

/// `whole` must have an estimate. `plans` is asked only if the recipe continues on fewer ranks.
MonthPlan plan_month(const config::Recipe& recipe, const EstimatedPlan& whole, int per_host, SmallerPlans& plans);

}  // namespace automodel::estimate
