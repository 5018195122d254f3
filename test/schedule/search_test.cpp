// Searched orders: how close to proved optima, and what holds for any costs.
#include <algorithm>

#include <catch2/catch.hpp>

#include "golden.h"
#include "schedule/pipeline_costs.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/search_order.h"

namespace automodel::schedule {
namespace {

PlacementStyle style_named(const std::string& name) {
  return name == "v" ? PlacementStyle::kV : PlacementStyle::kLoop;
}

/// The search's table, valid, proven, and within the limit of memory.
PipelineSchedule searched(const PipelineCosts& costs, const Placement& placement, int microbatches) {
  CHECK(check_costs(costs, placement).empty());
  CsvTable table{search_order(scaled(costs, placement, microbatches).work), Origin("search")};
  const Shape shape{placement.ranks(), placement.stages(), microbatches};
  PipelineSchedule made = make_schedule(std::move(table), CsvFormat::kComputeOnly, shape);
  INFO(to_text(made.problems));
  REQUIRE(made.ok());
  CHECK(made.placement == placement);
  if (costs.memory)
    for (const double peak : peak_activations(made.order, costs)) CHECK(peak <= *costs.memory + 1e-9);
  return made;
}

double makespan(const PipelineSchedule& made, const PipelineCosts& costs) {
  return earliest_times(made.order, made.placement, made.shape, costs).makespan;
}

class Numbers {
 public:
  double between(double low, double high) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return low + (high - low) * static_cast<double>((state_ >> 33U) % 1000) / 1000;
  }
  int below(int limit) { return static_cast<int>(between(0, limit)); }

 private:
  std::uint64_t state_ = 3;
};

PipelineCosts random_costs(const Placement& placement, Numbers& numbers) {
  PipelineCosts costs = even_costs(placement.stages());
  for (auto* list : {&costs.forward, &costs.backward_input, &costs.backward_weight, &costs.activation})
    for (double& value : *list) value = numbers.between(0.5, 2);
  for (std::size_t s = 0; s < costs.kept.size(); ++s) costs.kept[s] = costs.activation[s] * numbers.between(0.2, 1);
  costs.message = numbers.between(0, 0.5);
  return costs;
}

}  // namespace

TEST_CASE("searched orders are within 5 % of proved optima, 90 % of them within 2 %", "[schedule][golden]") {
  std::istringstream lines(read_file(golden_path("optimal.jsonl")));
  int cases = 0;
  int close = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    const auto& in = record["input"];
    INFO(in.dump());
    const int ranks = in["pp"];
    const auto placement = make_placement(style_named(in["style"]), ranks, ranks * in["spr"].get<int>());
    PipelineCosts costs{in["forward"],    in["backward_input"], in["backward_weight"],
                        in["activation"], in["kept"],           in["comm"]};
    if (!in["memory"].is_null()) costs.memory = in["memory"].get<double>();
    const double optimum = record["output"]["makespan"];
    const double reached = makespan(searched(costs, placement, in["microbatches"]), costs);
    CHECK(lower_bound(costs, placement, in["microbatches"]) <= optimum + 1e-6);
    CHECK(reached >= optimum - 1e-6);
    CHECK(reached <= 1.05 * optimum);
    ++cases;
    close += reached <= 1.02 * optimum ? 1 : 0;
  }
  CHECK(cases == 24);
  CHECK(close >= 22);
}

TEST_CASE("a search is never longer than a named schedule in the same memory, and repeats itself", "[schedule]") {
  Numbers numbers;
  int compared = 0;
  for (const auto& [style, ranks, per_rank, microbatches] :
       {std::tuple{PlacementStyle::kLoop, 3, 1, 6}, std::tuple{PlacementStyle::kLoop, 2, 2, 4},
        std::tuple{PlacementStyle::kV, 3, 2, 7}, std::tuple{PlacementStyle::kV, 4, 2, 8},
        std::tuple{PlacementStyle::kLoop, 4, 3, 8}}) {
    const auto placement = make_placement(style, ranks, ranks * per_rank);
    PipelineCosts costs = random_costs(placement, numbers);
    for (const auto& row : generators()) {
      const Request request{ranks, per_rank, microbatches};
      if (row.generate == nullptr || row.placement != style || !check_request(row, request).empty()) continue;
      INFO(row.name << " on " << ranks << " ranks");
      const PipelineSchedule named = make_schedule(row, request);
      const auto peaks = peak_activations(named.order, costs);
      costs.memory = *std::max_element(peaks.begin(), peaks.end());
      const PipelineSchedule made = searched(costs, placement, microbatches);
      // Costs are rounded to a millionth.
      CHECK(makespan(made, costs) <= makespan(named, costs) * (1 + 1e-5));
      if (compared++ == 0) CHECK(searched(costs, placement, microbatches).order == made.order);
    }
  }
  CHECK(compared > 12);
}

TEST_CASE("a search finds a table down to the memory of one microbatch, and a bound holds", "[schedule]") {
  Numbers numbers;
  for (int round = 0; round < 12; ++round) {
    const int ranks = 1 + numbers.below(4);
    const auto style = round % 2 == 0 ? PlacementStyle::kLoop : PlacementStyle::kV;
    const auto placement = make_placement(style, ranks, ranks * (1 + numbers.below(3)));
    const int microbatches = 1 + numbers.below(6);
    PipelineCosts costs = random_costs(placement, numbers);
    double least = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      double sum = 0;
      for (const Stage stage : placement.stages_of(rank)) sum += costs.activation[stage.at()];
      least = std::max(least, sum);
    }
    costs.memory = least * (1 + 1e-5) + numbers.between(0, 1) * (round % 3);
    INFO(ranks << " ranks, " << placement.stages() << " stages, " << microbatches << " microbatches");
    const double reached = makespan(searched(costs, placement, microbatches), costs);
    CHECK(reached * (1 + 1e-5) >= lower_bound(costs, placement, microbatches));
  }
}

TEST_CASE("wrong costs are refused with the rule and the nearest possible value", "[schedule]") {
  const auto placement = make_placement(PlacementStyle::kLoop, 2, 2);
  const auto problem = [&](auto&& change) {
    PipelineCosts costs = even_costs(2);
    change(costs);
    const auto problems = check_costs(costs, placement);
    REQUIRE(problems.size() == 1);
    return problems[0];
  };
  const auto negative = problem([](PipelineCosts& costs) { costs.forward[1] = -1; });
  CHECK(negative.id == "schedule-costs");
  CHECK(negative.message == "forward of stage 1 is -1");
  CHECK_THAT(negative.help, Catch::Contains("nearest possible value is 0"));
  CHECK_THAT(problem([](PipelineCosts& costs) { costs.message = NAN; }).message, Catch::Contains("comm is nan"));
  CHECK(problem([](PipelineCosts& costs) { costs.kept = {1}; }).message == "kept has 1 numbers for 2 stages");
  CHECK_THAT(problem([](PipelineCosts& costs) { costs.kept[0] = 2; }).help, Catch::Contains("at most 1"));
  CHECK_THAT(problem([](PipelineCosts& costs) {
               costs.forward = costs.backward_input = costs.backward_weight = {0, 0};
             }).help,
             Catch::Contains("positive"));
  const auto limit = problem([](PipelineCosts& costs) { costs.memory = 0.5; });
  CHECK(limit.id == "schedule-memory-limit");
  CHECK_THAT(limit.help, Catch::Contains("at least 1"));
}

TEST_CASE("the earliest times are those of a simulation without communication costs", "[schedule]") {
  for (const char* name : {"1F1B", "GPipe", "ZB-H1"}) {
    const auto made = make_schedule(generator_named(name), {3, 1, 5});
    const auto timeline = earliest_times(made.order, made.placement, made.shape, even_costs(3));
    CHECK(timeline.makespan == simulate(made.training, made.placement, made.shape, unit_costs(3)).makespan);
  }
}

}  // namespace automodel::schedule
