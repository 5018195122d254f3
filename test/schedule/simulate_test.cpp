#include "schedule/simulate.h"

#include <map>

#include <catch2/catch.hpp>

#include "golden.h"
#include "schedule/pipeline_schedule.h"

namespace automodel::schedule {
namespace {

Timeline unit_time(const std::string& name, const Request& request) {
  const PipelineSchedule made = make_schedule(generator_named(name), request);
  REQUIRE(made.ok());
  return simulate(made.training, made.placement, made.shape, unit_costs(made.shape.stages));
}

/// Time that a rank waits between its first and its last computation.
double inner_idle(const Timeline& timeline, int rank) {
  double first = timeline.makespan;
  double last = 0;
  double busy = 0;
  for (const Event& event : timeline.events)
    if (event.rank == rank && event.lane == Lane::kCompute) {
      first = std::min(first, event.start);
      last = std::max(last, event.end);
      busy += event.end - event.start;
    }
  return last - first - busy;
}

}  // namespace

TEST_CASE("the bubble of GPipe and 1F1B is (p-1)/(m+p-1)", "[schedule]") {
  for (const std::string name : {"GPipe", "1F1B"})
    for (const int p : {1, 2, 3, 4, 8})
      for (const int m : {1, 2, 4, 8, 32}) {
        INFO(name << " p " << p << " m " << m);
        const Timeline timeline = unit_time(name, {p, 1, m});
        CHECK(timeline.bubble_fraction == Approx(static_cast<double>(p - 1) / (m + p - 1)).margin(1e-12));
        CHECK(timeline.makespan == Approx(3.0 * (m + p - 1)));
      }
}

TEST_CASE("interleaving divides the bubble by the stages per rank", "[schedule]") {
  for (const std::string name : {"Interleaved1F1B", "MegatronInterleaved", "LoopedBFS"})
    for (const int p : {2, 4, 8})
      for (const int v : {2, 4})
        for (const int rounds : {1, 2, 4}) {
          const int m = p * rounds;
          INFO(name << " p " << p << " v " << v << " m " << m);
          CHECK(unit_time(name, {p, v, m}).bubble_fraction ==
                Approx(static_cast<double>(p - 1) / (v * m + p - 1)).margin(1e-12));
        }
}

TEST_CASE("splitting the backward pass shrinks the bubble of interleaved 1F1B to a third", "[schedule]") {
  for (const int p : {2, 4, 8})
    for (const int v : {2, 4}) {
      const int m = 4 * p;
      INFO("p " << p << " v " << v);
      const Timeline timeline = unit_time("InterleavedZeroBubble", {p, v, m});
      CHECK(timeline.makespan <= 3.0 * v * m + 1.0 * (p - 1) + 1e-9);
      CHECK(timeline.bubble_fraction < unit_time("Interleaved1F1B", {p, v, m}).bubble_fraction);
    }
}

TEST_CASE("ZBVZeroBubble never waits once it has started if F, I and W take the same time", "[schedule]") {
  for (const int p : {1, 2, 4, 8})
    for (const int m : {2 * p - 1, 2 * p, 4 * p}) {
      INFO("p " << p << " m " << m);
      const Timeline timeline = unit_time("ZBVZeroBubble", {p, 2, m});
      for (int rank = 0; rank < p; ++rank) CHECK(inner_idle(timeline, rank) == Approx(0).margin(1e-9));
      CHECK(timeline.makespan == Approx(6.0 * m + p - 1));
    }
}

TEST_CASE("DualPipeV keeps its ranks busier than 1F1B", "[schedule]") {
  for (const int p : {2, 4, 8}) {
    const int m = 4 * p;
    CHECK(unit_time("DualPipeV", {p, 2, m}).bubble_fraction < unit_time("1F1B", {p, 1, m}).bubble_fraction);
  }
}

TEST_CASE("messages delay the computations that need them by latency and transfer time", "[schedule]") {
  const PipelineSchedule made = make_schedule(generator_named("GPipe"), {2, 1, 2});
  Costs costs = unit_costs(2);
  costs.edges[0] = {0.25, 0.5};
  // A receive is posted at its position in the row: 1RECV_F1 at the end of 1F0 (2.75), 0RECV_B1 at the end of 0B0
  // (9.25). Each message takes 0.75 from there.
  const Timeline beside = simulate(made.training, made.placement, made.shape, costs);
  REQUIRE_THAT(to_text(made.training[1]), Catch::Contains("1RECV_F0,1F0,1RECV_F1,1F1"));
  CHECK(beside.makespan == Approx(9.25 + 0.75 + 2));
  CHECK(beside.ranks[0].communicating == Approx(1.0));
  CHECK(beside.ranks[0].busy == Approx(6));
  CHECK(beside.ranks[0].idle == Approx(beside.makespan - 6));
  // Without overlap the second forward of rank 0 waits for its first send, and stage 1 for its sends.
  costs.overlap_communication = false;
  const Timeline alone = simulate(made.training, made.placement, made.shape, costs);
  std::map<std::string, double> start;
  for (const Event& event : alone.events) start[to_text(event.action)] = event.start;
  CHECK(start["0F1"] == Approx(1.5));
  CHECK(start["1F1"] == Approx(2.75 + 0.5 + 0.25));
  CHECK(start["1B1"] == Approx(start["1B0"] + 2 + 0.5));
}

TEST_CASE("gathering parameters delays the first computation, and reducing gradients delays the end", "[schedule]") {
  const PipelineSchedule made = make_schedule(generator_named("GPipe"), {1, 1, 2});
  Costs costs = unit_costs(1);
  costs.stages[0].unshard = 0.5;
  costs.stages[0].reduce_grad = 1.5;
  for (const bool overlap : {true, false}) {
    costs.overlap_communication = overlap;
    const Timeline timeline = simulate(made.training, made.placement, made.shape, costs);
    CHECK(timeline.makespan == Approx(0.5 + 6 + 1.5));
    CHECK(timeline.bubble_fraction == Approx(2.0 / 8.0));
  }
}

TEST_CASE("gathering a later stage overlaps with computation", "[schedule]") {
  const PipelineSchedule made = make_schedule(generator_named("LoopedBFS"), {1, 2, 2});
  Costs costs = unit_costs(2);
  for (auto& stage : costs.stages) stage.unshard = 1;
  CHECK(simulate(made.training, made.placement, made.shape, costs).makespan == Approx(1 + 12));
  costs.overlap_communication = false;
  CHECK(simulate(made.training, made.placement, made.shape, costs).makespan == Approx(2 + 12));
}

TEST_CASE("the simulated microbatches in flight match the proof", "[schedule]") {
  for (const auto& row : generators()) {
    if (row.generate == nullptr) continue;
    const Request request{4, row.min_stages_per_rank, 16};
    const PipelineSchedule made = make_schedule(row, request);
    const Timeline timeline = simulate(made.training, made.placement, made.shape, unit_costs(made.shape.stages));
    for (std::size_t rank = 0; rank < 4; ++rank)
      CHECK(timeline.ranks[rank].peak_in_flight == made.proof.ranks[rank].in_flight);
  }
}

}  // namespace automodel::schedule
