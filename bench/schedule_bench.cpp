// Time to generate, validate, lower, prove and simulate a schedule. Prints one line per schedule: the median of many
// runs for each part in milliseconds, and the total of the first run, which is what a command that plans once pays.
#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "schedule/generators.h"
#include "schedule/lower.h"
#include "schedule/prove.h"
#include "schedule/simulate.h"
#include "schedule/validate.h"

namespace {

using namespace automodel::schedule;  // NOLINT(google-build-using-namespace): a single-file program

constexpr int kRuns = 41;
constexpr std::array<std::string_view, 6> kParts = {"generate", "validate", "lower", "prove", "simulate", "total"};

struct Measured {
  std::array<double, kParts.size()> milliseconds = {};
  std::size_t actions = 0;
};

Measured run_once(const Generator& generator, const Request& request) {
  Measured out;
  std::size_t part = 0;
  const auto begin = std::chrono::steady_clock::now();
  auto last = begin;
  const auto lap = [&] {
    const auto now = std::chrono::steady_clock::now();
    out.milliseconds[part++] = std::chrono::duration<double, std::milli>(now - last).count();
    last = now;
  };
  const Shape shape = request.shape();
  const Schedule order = generate(generator, request);
  lap();
  if (!validate(order, shape).empty()) fmt::print("not valid\n");
  lap();
  const Placement placement = *infer_placement(order, shape.stages);
  const Lowered lowered = lower(order, placement, shape);
  lap();
  if (!prove(lowered.schedule, placement, shape).ok()) fmt::print("not proven\n");
  lap();
  const Timeline timeline = simulate(lowered.schedule, placement, shape, unit_costs(shape.stages));
  lap();
  out.milliseconds[part] = std::chrono::duration<double, std::milli>(last - begin).count();
  for (const Row& row : lowered.schedule) out.actions += row.size();
  return out;
}

void measure(const Generator& generator, const Request& request) {
  std::vector<Measured> runs;
  for (int i = 0; i < kRuns; ++i) runs.push_back(run_once(generator, request));
  fmt::print("{:<22} {:>5} {:>6} {:>5} {:>8}", generator.name, request.ranks, request.stages_per_rank,
             request.microbatches, runs[0].actions);
  for (std::size_t part = 0; part < kParts.size(); ++part) {
    std::vector<double> times;
    for (const auto& run : runs) times.push_back(run.milliseconds[part]);
    std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
    fmt::print(" {:>8.3f}", times[kRuns / 2]);
  }
  const auto best = std::min_element(runs.begin(), runs.end(), [](const Measured& a, const Measured& b) {
    return a.milliseconds.back() < b.milliseconds.back();
  });
  fmt::print(" {:>8.3f} {:>8.3f}\n", best->milliseconds.back(), runs[0].milliseconds.back());
}

}  // namespace

int main() {
  fmt::print("{:<22} {:>5} {:>6} {:>5} {:>8}", "schedule", "ranks", "stages", "mb", "actions");
  for (const auto part : kParts) fmt::print(" {:>8}", part);
  fmt::print(" {:>8} {:>8}\n", "best", "first");
  for (const auto& row : generators()) {
    if (row.generate == nullptr) continue;
    for (const int stages : {1, 2, 4, 8}) {
      const bool in_range = stages >= row.min_stages_per_rank &&
                            (row.max_stages_per_rank == 0 || stages <= row.max_stages_per_rank) &&
                            (stages > 1 || row.single_stage);
      if (in_range) measure(row, {16, stages, 64});
    }
  }
}
