// The executor with stages that compute nothing: every schedule on ranks that are threads, with messages that arrive as
// late as they may.
#include "pipeline/executor.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "comm/late_group.h"
#include "comm/loopback/loopback.h"
#include "pipeline/fake_stage.h"
#include "schedule/generators.h"
#include "schedule/pipeline_schedule.h"
#include "torch_catch.h"

namespace automodel::pipeline {
namespace {

using test::FakeStage;
using test::RankLog;
using Events = std::vector<std::string>;

Table training_table(const schedule::Generator& generator, const schedule::Request& request) {
  const auto made = schedule::make_schedule(generator, request);
  INFO(to_text(made.problems));
  REQUIRE(made.ok());
  return {made.training, made.placement, made.shape};
}

/// Writes down when messages leave.
class WatchedGroup : public test::LateGroup {
 public:
  WatchedGroup(std::shared_ptr<comm::Communicator> inner, RankLog& log) : LateGroup(std::move(inner)), log_(log) {}

 protected:
  comm::WorkPtr start_exchange(std::vector<comm::Transfer> sends, std::vector<comm::Transfer> receives) override {
    if (!sends.empty()) log_.events.emplace_back("SEND");
    return LateGroup::start_exchange(std::move(sends), std::move(receives));
  }

 private:
  RankLog& log_;
};

/// Runs the table once for each of `runs`, and returns what happened on each rank.
std::vector<RankLog> run(const Table& table, const std::vector<ExecuteOptions>& runs) {
  std::vector<RankLog> logs(static_cast<std::size_t>(table.placement.ranks()));
  const auto body = [&](comm::World& world) {
    auto& log = logs[static_cast<std::size_t>(world.rank())];
    std::vector<int> ranks;
    for (int rank = 0; rank < world.size(); ++rank) ranks.push_back(rank);
    const auto group = std::make_shared<WatchedGroup>(world.group(ranks, "pipeline"), log);
    std::vector<std::unique_ptr<FakeStage>> stages;
    std::vector<StageRunner*> runners;
    for (const auto number : table.placement.stages_of(world.rank())) {
      stages.push_back(std::make_unique<FakeStage>(number, table.placement.stages(), log));
      runners.push_back(stages.back().get());
    }
    Executor executor(table, world.rank(), group.get(), runners);
    executor.set_message({.rows = 1, .tokens = {1}, .widths = {2}, .type = at::kFloat, .side = 3});
    for (const auto& options : runs) executor.run(options);
  };
  const auto outcome = comm::run_ranks(table.placement.ranks(), body,
                                       {.deadline = std::chrono::seconds(30), .background_progress = false});
  INFO(outcome.text);
  CHECK(outcome.ok());
  return logs;
}

/// What the table tells a rank's stages to do.
Events wanted_of(const Table& table, int rank) {
  using schedule::Op;
  Events out;
  for (const auto& slot : table.rows[static_cast<std::size_t>(rank)])
    for (const auto& action : slot.actions()) {
      const int stage = action.stage().value, microbatch = action.microbatch().value;
      switch (action.op()) {
        case Op::kForward: out.push_back(fmt::format("F{}.{}", stage, microbatch)); break;
        case Op::kBackwardInput: out.push_back(fmt::format("I{}.{}", stage, microbatch)); break;
        case Op::kBackwardWeight: out.push_back(fmt::format("W{}.{}", stage, microbatch)); break;
        case Op::kFullBackward: out.push_back(fmt::format("B{}.{}", stage, microbatch)); break;
        case Op::kUnshard: out.push_back(fmt::format("UNSHARD {}", stage)); break;
        case Op::kReshard: out.push_back(fmt::format("RESHARD {}", stage)); break;
        case Op::kReduceGrad: out.push_back(fmt::format("REDUCE {} last", stage)); break;
        case Op::kSendForward:
        case Op::kSendBackward: out.emplace_back("SEND"); break;
        case Op::kRecvForward:
        case Op::kRecvBackward: break;
      }
    }
  return out;
}

Events without(const Events& events, const std::string& prefix) {
  Events out;
  for (const auto& each : events)
    if (!each.starts_with(prefix)) out.push_back(each);
  return out;
}

std::ptrdiff_t count_of(const Events& events, const std::string& event) {
  return std::count(events.begin(), events.end(), event);
}

/// Calls `check` for every schedule of the table in several sizes.
template <class Check>
void for_every_schedule(const Check& check) {
  for (const auto& generator : schedule::generators())
    for (const int ranks : {1, 2, 4})
      for (const int stages : {1, 2, 3})
        for (const int microbatches : {1, 4, 8}) {
          const schedule::Request request{.ranks = ranks, .stages_per_rank = stages, .microbatches = microbatches};
          if (!schedule::check_request(generator, request).empty()) continue;
          INFO(generator.name << ", " << ranks << " ranks of " << stages << " stages, " << microbatches
                              << " microbatches");
          check(training_table(generator, request));
        }
}

const schedule::Generator& named(const char* name) {
  const auto* out = schedule::find_generator(name);
  REQUIRE(out != nullptr);
  return *out;
}

}  // namespace

TEST_CASE("every schedule runs in the order of its table, with the right messages") {
  for_every_schedule([](const Table& table) {
    const auto logs = run(table, {{}, {}});
    for (int rank = 0; rank < table.placement.ranks(); ++rank) {
      const auto& log = logs[static_cast<std::size_t>(rank)];
      CHECK(log.problems == Events{});
      auto wanted = wanted_of(table, rank);
      const auto once = wanted;
      wanted.insert(wanted.end(), once.begin(), once.end());
      CHECK(without(log.events, "LAST") == wanted);
    }
  });
}

TEST_CASE("delayed weight gradients are complete before they are reduced, for every schedule") {
  for_every_schedule([](const Table& table) {
    for (const auto& log : run(table, {{.delay_weight_gradients = true}})) CHECK(log.problems == Events{});
  });
}

TEST_CASE("only the last run of a step reduces for good, and announces each stage's last backward pass") {
  for_every_schedule([](const Table& table) {
    const auto logs = run(table, {{.last_run = false}, {.last_run = true}});
    for (int rank = 0; rank < table.placement.ranks(); ++rank) {
      const auto& events = logs[static_cast<std::size_t>(rank)].events;
      for (const auto stage : table.placement.stages_of(rank)) {
        CHECK(count_of(events, fmt::format("REDUCE {}", stage.value)) == 1);
        CHECK(count_of(events, fmt::format("REDUCE {} last", stage.value)) == 1);
        const auto last = std::find(events.begin(), events.end(), fmt::format("LAST {}", stage.value));
        REQUIRE(last != events.end());
        CHECK(count_of(events, *last) == 1);
        // It comes right before the last B or W of the stage, in the second run.
        const auto completes = [&](const std::string& event) {
          return event.starts_with(fmt::format("B{}.", stage.value)) ||
                 event.starts_with(fmt::format("W{}.", stage.value));
        };
        CHECK(completes(*(last + 1)));
        CHECK(std::none_of(last + 2, events.end(), completes));
        CHECK(std::count_if(events.begin(), events.end(), completes) == 2 * table.shape.microbatches);
      }
    }
  });
}

TEST_CASE("a run of fewer microbatches leaves out what the table does with the others") {
  for_every_schedule([](const Table& table) {
    const int microbatches = (table.shape.microbatches + 1) / 2;
    auto part = table;
    for (auto& row : part.rows) {
      schedule::Row left;
      for (const auto& slot : row)
        for (const auto& action : slot.actions())
          if (action.microbatch().value < microbatches) left.emplace_back(action);
      row = std::move(left);
    }
    const auto logs = run(table, {{.microbatches = microbatches}});
    for (int rank = 0; rank < table.placement.ranks(); ++rank) {
      CHECK(without(logs[static_cast<std::size_t>(rank)].events, "LAST") == wanted_of(part, rank));
      CHECK(count_of(logs[static_cast<std::size_t>(rank)].events,
                     fmt::format("LAST {}", table.placement.stages_of(rank).front().value)) == 1);
    }
  });
}

TEST_CASE("delayed weight gradients follow the message that they made room for") {
  const auto table = training_table(named("1F1B"), {.ranks = 2, .microbatches = 2});
  const auto logs = run(table, {{.delay_weight_gradients = true}});
  const auto computed = [](const RankLog& log) {
    Events out;
    for (const auto& each : log.events)
      if (each == "SEND" || (each[1] >= '0' && each[1] <= '9')) out.push_back(each);
    return out;
  };
  // The first stage sends no gradient.
  CHECK(computed(logs[0]) == Events{"F0.0", "SEND", "F0.1", "SEND", "B0.0", "B0.1"});
  CHECK(computed(logs[1]) == Events{"F1.0", "I1.0", "SEND", "W1.0", "F1.1", "I1.1", "SEND", "W1.1"});
}

TEST_CASE("weight gradients are not delayed beyond the next action where neighbouring stages share a rank") {
  using schedule::Op;
  const schedule::Placement placement(1, {0, 0});
  const auto action = [](Op op, int stage) { return schedule::make_action(op, stage, 0); };
  const auto of_stage = [](Op op, int stage) { return schedule::make_action(op, schedule::Stage{stage}); };
  schedule::Row row;
  for (const int stage : {0, 1}) row.emplace_back(of_stage(Op::kUnshard, stage));
  row.emplace_back(action(Op::kForward, 0));
  row.emplace_back(action(Op::kForward, 1));
  row.emplace_back(action(Op::kFullBackward, 1));
  row.emplace_back(of_stage(Op::kReduceGrad, 1));
  row.emplace_back(action(Op::kFullBackward, 0));
  row.emplace_back(of_stage(Op::kReduceGrad, 0));
  for (const int stage : {0, 1}) row.emplace_back(of_stage(Op::kReshard, stage));
  const auto logs = run({{row}, placement, {1, 2, 1}}, {{.delay_weight_gradients = true}});
  CHECK(logs[0].problems == Events{});
  CHECK(logs[0].events == Events{"UNSHARD 0", "UNSHARD 1", "F0.0", "F1.0", "LAST 1", "I1.0", "W1.0", "REDUCE 1 last",
                                 "LAST 0", "B0.0", "REDUCE 0 last", "RESHARD 0", "RESHARD 1"});
}

TEST_CASE("forward passes before the first backward pass are counted over the stages of a rank") {
  RankLog log;
  const auto table = training_table(named("LoopedBFS"), {.ranks = 1, .stages_per_rank = 3, .microbatches = 2});
  std::vector<std::unique_ptr<FakeStage>> stages;
  std::vector<StageRunner*> runners;
  for (int i = 0; i < 3; ++i)
    runners.push_back(stages.emplace_back(std::make_unique<FakeStage>(schedule::Stage{i}, 3, log)).get());
  CHECK(Executor(table, 0, nullptr, runners).in_flight() == 6);
  std::swap(runners[0], runners[1]);
  CHECK_THROWS_AS(Executor(table, 0, nullptr, runners), InternalError);
  runners.pop_back();
  CHECK_THROWS_AS(Executor(table, 0, nullptr, runners), InternalError);
}

TEST_CASE("a table that leaves a message behind is a defect") {
  using schedule::Op;
  RankLog log;
  FakeStage first(schedule::Stage{0}, 2, log), second(schedule::Stage{1}, 2, log);
  const schedule::Placement placement(1, {0, 0});
  schedule::Row row;
  row.emplace_back(schedule::make_action(Op::kForward, 0, 0));
  Executor executor({{row}, placement, {1, 2, 1}}, 0, nullptr, {&first, &second});
  CHECK_THROWS_AS(executor.run({}), InternalError);
}

}  // namespace automodel::pipeline
