#include "schedule/prove.h"

#include <catch2/catch.hpp>

#include "golden.h"
#include "schedule/deadlock.h"
#include "schedule/lower.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/validate.h"

namespace automodel::schedule {
namespace {

using Texts = std::vector<std::string>;

/// What prove() says of a table whose computations are complete.
Texts problems_of(const std::vector<std::string>& rows, const Placement& placement, int microbatches) {
  const Schedule schedule = table(rows);
  const Shape shape{placement.ranks(), placement.stages(), microbatches};
  REQUIRE(to_text(validate(schedule, shape)) == "");
  Texts out;
  for (const auto& problem : prove(schedule, placement, shape).problems)
    out.push_back(std::string(problem.id) + " " + problem.message);
  return out;
}
Texts problems_of(const std::vector<std::string>& rows, int microbatches = 1) {
  const int ranks = static_cast<int>(rows.size());
  return problems_of(rows, make_placement(PlacementStyle::kLoop, ranks, ranks), microbatches);
}

}  // namespace

TEST_CASE("a complete table is proven to run without deadlock", "[schedule]") {
  CHECK(problems_of({"0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD", "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD"}).empty());
}

TEST_CASE("blocking sends that cross are refused with the cycle", "[schedule]") {
  // Both ranks send before they post the receive that the other one waits for.
  const Texts problems = problems_of({"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD",
                                      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD"},
                                     2);
  CHECK(problems == Texts{"schedule-deadlock the ranks wait for each other: rank 0 waits at step 3 `0SEND_F1` for "
                          "`1RECV_F1` of rank 1, which waits at step 3 `1SEND_B0` for `0RECV_B0` of rank 0"});
}

TEST_CASE("a cycle between inner ranks is described from its lowest rank", "[schedule]") {
  const Texts problems = problems_of({"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0,0REDUCE_GRAD",
                                      "1RECV_F0,1RECV_F1,1F0,1F1,1SEND_F1,1SEND_F0,1RECV_B1,1B1,1SEND_B1,1RECV_B0,1B0,"
                                      "1SEND_B0,1REDUCE_GRAD",
                                      "2RECV_F1,2F1,2B1,2SEND_B1,2RECV_F0,2F0,2B0,2SEND_B0,2REDUCE_GRAD"},
                                     2);
  CHECK(problems == Texts{"schedule-deadlock the ranks wait for each other: rank 1 waits at step 5 `1SEND_F0` for "
                          "`2RECV_F0` of rank 2, which waits at step 3 `2SEND_B1` for `1RECV_B1` of rank 1"});
}

TEST_CASE("incomplete or misplaced communication is refused", "[schedule]") {
  const std::string r0 = "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD";
  const std::string r1 = "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD";
  CHECK(problems_of({"0F0,0RECV_B0,0B0,0REDUCE_GRAD", r1}) ==
        Texts{"schedule-recv rank 1, step 0: 1RECV_F0 has no 0SEND_F0 on rank 0"});
  CHECK(problems_of({r0, "1F0,1B0,1SEND_B0,1REDUCE_GRAD"}) ==
        Texts{"schedule-recv rank 1, step 0: 1F0 without having received its data"});
  CHECK(problems_of({r0, "1F0,1RECV_F0,1B0,1SEND_B0,1REDUCE_GRAD"}) ==
        Texts{"schedule-recv rank 1, step 0: 1F0 without having received its data",
              "schedule-recv rank 1, step 1: 1RECV_F0 after its data is used"});
  CHECK(problems_of({"0SEND_F0,0F0,0RECV_B0,0B0,0REDUCE_GRAD", r1}) ==
        Texts{"schedule-send rank 0, step 0: 0SEND_F0 before its data is computed"});
  CHECK(problems_of({"0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD", r1}) ==
        Texts{"schedule-send rank 0, step 2: 0SEND_F0 appears twice"});
  CHECK(problems_of({r0, "1RECV_F0,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD"}) ==
        Texts{"schedule-recv rank 1, step 1: 1RECV_F0 appears twice"});
  CHECK(problems_of({r0, "1RECV_F0,1F0,1SEND_F0,1B0,1SEND_B0,1REDUCE_GRAD"}) ==
        Texts{"schedule-send rank 1, step 2: 1SEND_F0: there is no stage at the other end"});
  CHECK(problems_of({r0, "1RECV_F0,1F0,1RECV_B0,1B0,1SEND_B0,1REDUCE_GRAD"}) ==
        Texts{"schedule-recv rank 1, step 2: 1RECV_B0: there is no stage at the other end"});
  CHECK(problems_of({r0 + ",0SEND_B0", r1}) ==
        Texts{"schedule-send rank 0, step 5: 0SEND_B0: there is no stage at the other end"});
}

TEST_CASE("stages on one rank exchange no messages and run in order", "[schedule]") {
  const Placement one(1, {0, 0});
  CHECK(problems_of({"0F0,1F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD"}, one, 1).empty());
  CHECK(problems_of({"1F0,0F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD"}, one, 1) ==
        Texts{"schedule-order rank 0, step 0: 1F0 before the forward of stage 0, which is on the same rank"});
  CHECK(problems_of({"0F0,1F0,0B0,1B0,0REDUCE_GRAD,1REDUCE_GRAD"}, one, 1) ==
        Texts{"schedule-order rank 0, step 2: 0B0 before the backward of stage 1, which is on the same rank"});
  CHECK(problems_of({"0F0,0SEND_F0,1F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD"}, one, 1) ==
        Texts{"schedule-send rank 0, step 1: 0SEND_F0: stage 1 is on the same rank"});
}

TEST_CASE("messages between two ranks must be received in the order in which they are sent", "[schedule]") {
  CHECK(
      problems_of({"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD",
                   "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD"},
                  2) ==
      Texts{"schedule-send-order rank 0, step 1: 0SEND_F0 is message 0 from rank 0 to rank 1, but 1RECV_F0 is receive "
            "1 there",
            "schedule-send-order rank 0, step 3: 0SEND_F1 is message 1 from rank 0 to rank 1, but 1RECV_F1 is receive "
            "0 there"});
}

TEST_CASE("gradients must be reduced once, after the last backward pass", "[schedule]") {
  const std::string r1 = "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD";
  CHECK(problems_of({"0F0,0SEND_F0,0RECV_B0,0B0", r1}) ==
        Texts{"schedule-reduce-grad rank 0: the gradients of stage 0 are never reduced"});
  CHECK(problems_of({"0F0,0SEND_F0,0RECV_B0,0REDUCE_GRAD,0B0", r1}) ==
        Texts{"schedule-reduce-grad rank 0, step 4: 0B0 after the gradients of stage 0 were reduced"});
  CHECK(problems_of({"0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0REDUCE_GRAD", r1}) ==
        Texts{"schedule-reduce-grad rank 0, step 5: 0REDUCE_GRAD appears twice"});
}

TEST_CASE("a stage that is ever gathered may be computed only while it is gathered", "[schedule]") {
  const std::string r1 = "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD";
  const auto with = [&](const std::string& row) { return problems_of({row, r1}); };
  CHECK(with("0UNSHARD,0F0,0SEND_F0,0RESHARD,0RECV_B0,0UNSHARD,0B0,0REDUCE_GRAD,0RESHARD").empty());
  CHECK(with("0UNSHARD,0F0,0SEND_F0,0RESHARD,0RECV_B0,0B0,0REDUCE_GRAD") ==
        Texts{"schedule-unshard rank 0, step 5: 0B0 while the parameters of stage 0 are not gathered"});
  CHECK(with("0UNSHARD,0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD") ==
        Texts{"schedule-unshard rank 0, step 1: 0UNSHARD while the parameters are gathered already"});
  CHECK(with("0F0,0UNSHARD,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD") ==
        Texts{"schedule-unshard rank 0, step 1: 0UNSHARD after stage 0 was computed"});
}

TEST_CASE("the proof counts buffers and microbatches in flight", "[schedule]") {
  // 1F1B: rank r keeps ranks - r microbatches.
  const PipelineSchedule made = make_schedule(generator_named("1F1B"), {4, 1, 8});
  REQUIRE(made.ok());
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(made.proof.ranks[rank].in_flight == static_cast<int>(4 - rank));
    CHECK(made.proof.stages[rank] == made.proof.ranks[rank]);
    CHECK(made.proof.ranks[rank].awaiting_weight == 0);
  }
  // GPipe keeps all.
  CHECK(make_schedule(generator_named("GPipe"), {4, 1, 8}).proof.ranks[3].in_flight == 8);

  const Schedule schedule = table({"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0RECV_B1,0I0,0I1,0W0,0W1,0REDUCE_GRAD",
                                   "1RECV_F0,1RECV_F1,1F0,1B0,1F1,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD"});
  const Proof proof = prove(schedule, make_placement(PlacementStyle::kLoop, 2, 2), {2, 2, 2});
  REQUIRE(to_text(proof.problems) == "");
  CHECK(proof.ranks[0] == Live{2, 2, 2});
  CHECK(proof.ranks[1] == Live{2, 1, 0});
}

TEST_CASE("a receive buffer is free again once its data is used", "[schedule]") {
  const Schedule schedule = table({"0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1,0REDUCE_GRAD",
                                   "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD"});
  const Proof proof = prove(schedule, make_placement(PlacementStyle::kLoop, 2, 2), {2, 2, 2});
  REQUIRE(to_text(proof.problems) == "");
  CHECK(proof.ranks[0].receive_buffers == 1);
  CHECK(proof.ranks[1].receive_buffers == 1);
}

TEST_CASE("a deadlock is described from the lowest rank of its cycle, not from a rank waiting for it", "[schedule]") {
  const Wait to_1{0, "2F0", "1F0", 1};
  const Wait to_2{3, "1F0", "2B0", 2};
  CHECK(deadlock({Wait{5, "0F0", "2F1", 2}, to_2, to_1}, Origin("t")).message ==
        "the ranks wait for each other: rank 1 waits at step 3 `1F0` for `2B0` of rank 2, which waits at step 0 `2F0` "
        "for `1F0` of rank 1");
  // A long description is cut off.
  std::vector<std::optional<Wait>> ring;
  for (std::size_t rank = 0; rank < 40; ++rank) ring.push_back(Wait{0, "a", "b", (rank + 1) % 40});
  const std::string story = deadlock(ring, Origin("t")).message;
  CHECK_THAT(story, Catch::EndsWith(", and so on over 40 ranks"));
  CHECK(story.size() < 1000);
}

TEST_CASE("the receive buffers of a rank cover the messages to all of its stages", "[schedule]") {
  const PipelineSchedule made = make_schedule(generator_named("LoopedBFS"), {2, 2, 4});
  REQUIRE(made.ok());
  int most = 0;
  for (std::size_t stage = 0; stage < 4; ++stage) most = std::max(most, made.proof.stages[stage].receive_buffers);
  CHECK(made.proof.ranks[0].receive_buffers >= most);
  CHECK(made.proof.ranks[0].in_flight == 8);
}

}  // namespace automodel::schedule
