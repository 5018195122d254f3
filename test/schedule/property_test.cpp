// What must hold for every schedule of every size.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>

#include <catch2/catch.hpp>

#include "golden.h"
#include "schedule/lower.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/simulate.h"
#include "schedule/validate.h"

namespace automodel::schedule {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::size_t below(std::size_t limit) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>((state_ >> 33) % limit);
  }
  double unit() { return static_cast<double>(below(1000)) / 1000; }

 private:
  std::uint64_t state_;
};

/// Visits every request of the grid that the generator accepts; the others must be refused with a help text.
void for_each_request(const Generator& row, const std::function<void(const Request&)>& visit) {
  for (const int ranks : {1, 2, 3, 4, 5, 8})
    for (const int stages : {1, 2, 3, 4})
      for (const int microbatches : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24})
        for (const int group : {0, 1, 3, 5, 8}) {
          if (group > 0 && row.name != "MegatronInterleaved") continue;
          const Request request{ranks, stages, microbatches, group};
          INFO(row.name << " ranks " << ranks << " stages per rank " << stages << " microbatches " << microbatches
                        << " group " << group);
          const auto problems = check_request(row, request);
          for (const auto& problem : problems) CHECK_FALSE(problem.help.empty());
          if (problems.empty()) visit(request);
        }
}

Costs random_costs(int stages, Random& random) {
  Costs costs = unit_costs(stages);
  for (auto& stage : costs.stages)
    stage = {0.1 + random.unit(), 0.1 + random.unit(), 0.1 + random.unit(), 0.1 + random.unit(), random.unit(), 0,
             random.unit()};
  for (auto& edge : costs.edges) edge = {random.unit(), random.unit()};
  costs.overlap_communication = random.below(2) == 0;
  return costs;
}

/// Checks that no two computations of a rank overlap, and that nothing starts before its inputs are ready.
void check_times(const Timeline& timeline, const PipelineSchedule& made, const Costs& costs) {
  std::map<Action, std::pair<double, double>> when;
  std::vector<double> free(made.order.size(), 0);
  bool ordered = true;
  for (const Event& event : timeline.events) {
    if (event.lane != Lane::kCompute) continue;
    when[event.action] = {event.start, event.end};
    double& busy_until = free[static_cast<std::size_t>(event.rank)];
    ordered = ordered && event.start >= busy_until;
    busy_until = event.end;
  }
  CHECK(ordered);
  bool caused = true;
  const auto edge = [&](int from, int to) {
    if (made.placement.rank_of(Stage{from}) == made.placement.rank_of(Stage{to})) return 0.0;
    const EdgeCost& cost = costs.edges[static_cast<std::size_t>(std::min(from, to))];
    return cost.latency + cost.transfer;
  };
  for (const auto& entry : when) {
    const Action action = entry.first;
    const auto time = entry.second;
    const auto after = [&](Op op, int stage) {
      const auto found = when.find({op, Stage{stage}, action.microbatch()});
      if (found == when.end()) return false;
      caused = caused && time.first >= found->second.second + edge(stage, action.stage().value) - 1e-9;
      return true;
    };
    const int stage = action.stage().value;
    if (action.op() == Op::kForward && stage > 0) caused = after(Op::kForward, stage - 1) && caused;
    if (action.op() == Op::kForward) continue;
    caused = after(Op::kForward, stage) && caused;
    if (action.op() == Op::kBackwardWeight) {
      caused = after(Op::kBackwardInput, stage) && caused;
    } else if (stage + 1 < made.shape.stages) {
      const bool split = after(Op::kBackwardInput, stage + 1);
      caused = (split || after(Op::kFullBackward, stage + 1)) && caused;
    }
  }
  CHECK(caused);
}

/// Runs a table naively: one slot of a random rank at a time, with messages as sets of strings. False if it gets stuck.
bool ends_naively(const Schedule& schedule, const Placement& placement, Random& random) {
  std::vector<std::size_t> next(schedule.size(), 0);
  std::set<std::string> posted;
  std::set<std::string> sent;
  const auto text = [](const char* op, int stage, Microbatch mb) {
    return op + std::to_string(stage) + "." + std::to_string(mb.value);
  };
  const auto can_run = [&](const Action& a) {
    const int s = a.stage().value;
    const auto remote = [&](int other) {
      return other >= 0 && other < placement.stages() &&
             placement.rank_of(Stage{other}) != placement.rank_of(a.stage());
    };
    if (a.op() == Op::kSendForward) return posted.count(text("F", s + 1, a.microbatch())) > 0;
    if (a.op() == Op::kSendBackward) return posted.count(text("B", s - 1, a.microbatch())) > 0;
    if (a.op() == Op::kForward && remote(s - 1)) return sent.count(text("F", s, a.microbatch())) > 0;
    if ((a.op() == Op::kFullBackward || a.op() == Op::kBackwardInput) && remote(s + 1))
      return sent.count(text("B", s, a.microbatch())) > 0;
    return true;
  };
  for (std::size_t stuck = 0; stuck < 4 * schedule.size() * schedule.size();) {
    const std::size_t rank = random.below(schedule.size());
    if (next[rank] == schedule[rank].size()) {
      ++stuck;
      continue;
    }
    const auto actions = schedule[rank][next[rank]].actions();
    if (!std::all_of(actions.begin(), actions.end(), can_run)) {
      ++stuck;
      continue;
    }
    stuck = 0;
    ++next[rank];
    for (const Action& a : actions) {
      if (a.op() == Op::kRecvForward) posted.insert(text("F", a.stage().value, a.microbatch()));
      if (a.op() == Op::kRecvBackward) posted.insert(text("B", a.stage().value, a.microbatch()));
      if (a.op() == Op::kSendForward) sent.insert(text("F", a.stage().value + 1, a.microbatch()));
      if (a.op() == Op::kSendBackward) sent.insert(text("B", a.stage().value - 1, a.microbatch()));
    }
  }
  for (std::size_t rank = 0; rank < schedule.size(); ++rank)
    if (next[rank] < schedule[rank].size()) return false;
  return true;
}

}  // namespace

TEST_CASE("every schedule of every size is complete, proven, and can run with any durations", "[schedule]") {
  Random random(7);
  int made_count = 0;
  for (const auto& row : generators()) {
    if (row.generate == nullptr) continue;
    for_each_request(row, [&](const Request& request) {
      const PipelineSchedule made = make_schedule(row, request);  // throws if a generated table is not sound
      ++made_count;
      CHECK(made.placement == make_placement(row.placement, request.ranks, request.stages()));
      CHECK(validate(made.training, made.shape).empty());
      CHECK(validate(made.evaluation, made.shape, {}, Purpose::kEvaluation).empty());
      CHECK(made.evaluation == lower(forward_only(made.order), made.placement, made.shape).schedule);
      const Costs costs = random_costs(made.shape.stages, random);
      check_times(simulate(made.training, made.placement, made.shape, costs), made, costs);
      const Costs unit = unit_costs(made.shape.stages);
      CHECK(simulate(made.evaluation, made.placement, made.shape, unit).makespan >= request.microbatches);
      // The complete table survives a round trip through its file.
      const PipelineSchedule again = make_schedule(read_csv(to_csv(made.training), "x", CsvFormat::kComputeComms),
                                                   CsvFormat::kComputeComms, made.shape);
      CHECK(again.training == made.training);
      CHECK(again.order == compute_only(made.order));
    });
  }
  CHECK(made_count > 1500);
}

TEST_CASE("microbatches in flight and buffers stay within each schedule's bounds", "[schedule]") {
  for (const auto& row : generators()) {
    if (row.generate == nullptr) continue;
    for_each_request(row, [&](const Request& request) {
      const PipelineSchedule made = make_schedule(row, request);
      const int all = request.microbatches * request.stages_per_rank;
      for (int rank = 0; rank < request.ranks; ++rank) {
        const Live& live = made.proof.ranks[static_cast<std::size_t>(rank)];
        CHECK(live.in_flight >= 1);
        CHECK(live.in_flight <= all);
        CHECK(live.awaiting_weight <= live.in_flight);
        CHECK(live.receive_buffers <= 2 * all);
        if (row.name == "GPipe" || row.name == "LoopedBFS") CHECK(live.in_flight == all);
        if (row.name == "1F1B") CHECK(live.in_flight == std::min(request.microbatches, request.ranks - rank));
        if (row.name == "ZBVZeroBubble" || row.name == "DualPipeV") CHECK(live.in_flight <= 2 * request.ranks + 1);
        if (row.name == "ZB-H1") CHECK(live.in_flight <= request.ranks);
        if (row.name == "ZB-H2") CHECK(live.in_flight <= 2 * request.ranks);
        if (row.name == "V-Half") CHECK(live.in_flight <= request.ranks + 2);
        if (row.name == "V-Min") CHECK(live.in_flight <= (request.ranks <= 4 ? 4 : (2 * request.ranks + 2) / 3 + 2));
        if (row.name == "MegatronInterleaved") {
          const int group = request.microbatch_group_size > 0 ? request.microbatch_group_size : request.ranks;
          CHECK(live.in_flight <= 2 * (request.ranks - rank - 1) + (request.stages_per_rank - 1) * group + 1);
        }
      }
    });
  }
}

TEST_CASE("the deadlock proof agrees with a naive run of shuffled tables", "[schedule]") {
  Random random(11);
  int proven = 0;
  int deadlocked = 0;
  int refused = 0;
  for (const auto& row : generators()) {
    if (row.generate == nullptr) continue;
    for (const int ranks : {2, 3, 4}) {
      const Request request{ranks, row.min_stages_per_rank == 1 && !row.single_stage ? 2 : row.min_stages_per_rank,
                            2 * ranks};
      const PipelineSchedule made = make_schedule(row, request);
      for (int round = 0; round < 600; ++round) {
        Schedule table = made.training;
        // Move some slots of one rank to later positions.
        Row& shuffled = table[random.below(table.size())];
        for (std::size_t moves = 0; moves < 1 + random.below(3); ++moves) {
          const auto from = static_cast<std::ptrdiff_t>(random.below(shuffled.size() - 1));
          const auto room = std::min<std::size_t>(6, shuffled.size() - 1 - static_cast<std::size_t>(from));
          const auto to = from + 1 + static_cast<std::ptrdiff_t>(random.below(room));
          std::rotate(shuffled.begin() + from, shuffled.begin() + from + 1, shuffled.begin() + to + 1);
        }
        if (!validate(table, made.shape).empty()) continue;
        const Proof proof = prove(table, made.placement, made.shape);
        if (proof.ok()) {
          CHECK(ends_naively(table, made.placement, random));
          ++proven;
        } else if (proof.problems[0].id == "schedule-deadlock") {
          CHECK_FALSE(ends_naively(table, made.placement, random));
          ++deadlocked;
        } else {
          ++refused;
        }
      }
    }
  }
  CHECK(proven > 1000);
  CHECK(deadlocked > 100);
  CHECK(refused > 1000);
}

}  // namespace automodel::schedule
