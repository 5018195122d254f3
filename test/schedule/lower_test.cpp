#include "schedule/lower.h"

#include <algorithm>

#include <catch2/catch.hpp>

#include "golden.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/validate.h"

namespace automodel::schedule {
namespace {

/// The definition of add_unshard_reshard, which looks ahead again from every slot.
Row unshard_reshard_by_definition(const Row& row) {
  Row slots;
  for (const Slot& slot : row)
    if (!slot.is_bubble()) slots.push_back(slot);
  Row out;
  std::vector<Stage> gathered;
  const auto has = [](const std::vector<Stage>& list, Stage stage) {
    return std::find(list.begin(), list.end(), stage) != list.end();
  };
  for (std::size_t i = 0; i < slots.size(); ++i) {
    std::vector<Stage> next;
    for (std::size_t j = i; j < slots.size() && next.size() < 3; ++j)
      for (const Action& action : slots[j].actions())
        if (!has(next, action.stage())) next.push_back(action.stage());
    std::sort(gathered.begin(), gathered.end());
    for (const Stage stage : gathered)
      if (!has(next, stage)) out.emplace_back(make_action(Op::kReshard, stage));
    for (const Stage stage : next)
      if (!has(gathered, stage)) out.emplace_back(make_action(Op::kUnshard, stage));
    gathered = next;
    out.push_back(slots[i]);
  }
  std::sort(gathered.begin(), gathered.end());
  for (const Stage stage : gathered) out.emplace_back(make_action(Op::kReshard, stage));
  return out;
}

}  // namespace

TEST_CASE("parameters are gathered for the next three stages, or four if an overlap adds two", "[schedule]") {
  const auto lowered = [](const std::string& row) { return to_text(add_unshard_reshard(table({row})[0])); };
  CHECK(lowered("0F0,,2F0") == "0UNSHARD,2UNSHARD,0F0,0RESHARD,2F0,2RESHARD");
  CHECK(lowered("0F0,1F0,2F0,3F0") ==
        "0UNSHARD,1UNSHARD,2UNSHARD,0F0,0RESHARD,3UNSHARD,1F0,1RESHARD,2F0,2RESHARD,3F0,3RESHARD");
  CHECK(lowered("0F0,1F0,(2F0;3B0)OVERLAP_F_B") ==
        "0UNSHARD,1UNSHARD,2UNSHARD,3UNSHARD,0F0,0RESHARD,1F0,1RESHARD,(2F0;3B0)OVERLAP_F_B,2RESHARD,3RESHARD");
}

TEST_CASE("gathering looks ahead exactly as in its naive definition", "[schedule]") {
  std::uint32_t state = 12345;
  const auto random = [&](std::uint32_t below) {
    state = state * 1664525 + 1013904223;
    return static_cast<int>((state >> 16) % below);
  };
  for (int round = 0; round < 300; ++round) {
    Row row;
    const auto stages = static_cast<std::uint32_t>(1 + round % 7);
    for (int i = 0; i < 40; ++i) {
      const auto one = make_action(Op::kForward, random(stages), i);
      const auto other = make_action(Op::kFullBackward, random(stages), i + 100);
      const int kind = random(8);
      row.push_back(kind == 0 ? Slot() : kind < 3 ? Slot(Overlap{one, other}) : Slot(one));
    }
    INFO(to_text(row));
    CHECK(to_text(add_unshard_reshard(row)) == to_text(unshard_reshard_by_definition(row)));
  }
}

TEST_CASE("gradients are reduced after the last backward pass of each stage", "[schedule]") {
  const Schedule order = table({"0F0,0I0,0F1,0B1,0W0,1B0,(0F2;1B1)OVERLAP_F_B,0F3"});
  CHECK(to_text(add_reduce_grad(order[0], {1, 2, 2})) ==
        "0F0,0I0,0F1,0B1,0W0,0REDUCE_GRAD,1B0,(0F2;1B1)OVERLAP_F_B,1REDUCE_GRAD,0F3");
}

TEST_CASE("messages are sent only between stages on different ranks", "[schedule]") {
  const Schedule order = table({"0F0,3F0,3B0,0B0", "1F0,2F0,2B0,1B0"});
  const auto lowered = add_send_recv(order, make_placement(PlacementStyle::kV, 2, 4), {2, 4, 1});
  REQUIRE(lowered.problems.empty());
  CHECK(to_text(lowered.schedule[0]) == "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0");
  CHECK(to_text(lowered.schedule[1]) == "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0");
}

TEST_CASE("an order that deadlocks is refused with the cycle, in steps of the given table", "[schedule]") {
  // Bubbles count as steps. The three ranks wait in a ring, which is possible only with looped stages.
  const Schedule order =
      table({",0F1,3F0,0F0,3F1,3B0,3B1,0B0,0B1", "1F0,1F1,4F0,4F1,4B0,4B1,1B0,1B1", "2F1,2F0,5F0,5F1,5B0,5B1,2B0,2B1"});
  const Shape shape{3, 6, 2};
  REQUIRE(validate(order, shape).empty());
  const auto lowered = lower(order, make_placement(PlacementStyle::kLoop, 3, 6), shape);
  CHECK(lowered.schedule.empty());
  REQUIRE(lowered.problems.size() == 1);
  CHECK(lowered.problems[0].id == "schedule-deadlock");
  CHECK(lowered.problems[0].message ==
        "the ranks wait for each other: rank 0 waits at step 2 `3F0` for `2F0` of rank 2, which waits at step 0 `2F1` "
        "for "
        "`1F1` of rank 1, which waits at step 0 `1F0` for `0F0` of rank 0");
}

TEST_CASE("a rank that waits for itself is refused as a deadlock", "[schedule]") {
  const Schedule order = table({"1F0,0F0,1B0,0B0"});
  const auto lowered = lower(order, make_placement(PlacementStyle::kLoop, 1, 2), {1, 2, 1});
  REQUIRE(lowered.problems.size() == 1);
  CHECK(lowered.problems[0].message ==
        "the ranks wait for each other: rank 0 waits at step 0 `1F0` for `0F0` of rank 0");
}

TEST_CASE("evaluation runs only the forward passes of the schedule", "[schedule]") {
  const PipelineSchedule made = make_schedule(generator_named("1F1B"), {2, 1, 2});
  CHECK(rows_text(made.evaluation) == std::vector<std::string>{"0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RESHARD",
                                                               "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1F1,1RESHARD"});
  CHECK(made.evaluation_proof.ranks[0].in_flight == 0);
  CHECK(validate(made.evaluation, made.shape, {}, Purpose::kEvaluation).empty());
}

}  // namespace automodel::schedule
