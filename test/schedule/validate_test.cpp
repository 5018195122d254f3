#include "schedule/validate.h"

#include <catch2/catch.hpp>

#include "golden.h"

namespace automodel::schedule {
namespace {

/// The problems of a table for 2 ranks, 2 stages and 2 microbatches, without help texts.
std::vector<std::string> problems_of(const std::vector<std::string>& rows, Purpose purpose = Purpose::kTraining) {
  std::vector<std::string> out;
  for (const auto& problem : validate(table(rows), {2, 2, 2}, Origin("t"), purpose))
    out.push_back(std::string(problem.id) + " " + problem.message);
  return out;
}
using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a complete table has no problems, even with B and I+W mixed", "[schedule]") {
  CHECK(problems_of({"0F0,0F1,0B0,0I1,0W1", "1F0,1I0,1F1,1B1,1W0"}).empty());
}

TEST_CASE("each fault in a table is reported at its cell", "[schedule]") {
  CHECK(problems_of({"0F0,0B0,0F1,0B1,0F1", "1F0,1B0,1F1,1B1"}) ==
        Texts{"schedule-duplicate rank 0, step 4: 0F1 appears twice"});
  CHECK(problems_of({"0F0,0B0,0F1,0B1,0I1", "1F0,1B0,1F1,1B1"}) ==
        Texts{"schedule-duplicate rank 0, step 4: 0I1 is a second backward of this microbatch"});
  CHECK(problems_of({"0F0,0B0,0F1,0B1,0W1", "1F0,1B0,1F1,1B1"}) ==
        Texts{"schedule-duplicate rank 0, step 4: 0W1 after the full backward"});
  CHECK(problems_of({"0F0,0B0,0F1,0I1,0W1,0W1", "1F0,1B0,1F1,1B1"}) ==
        Texts{"schedule-duplicate rank 0, step 5: 0W1 appears twice"});
  CHECK(problems_of({"0F0,0B0,0F1,0W1,0I1", "1F0,1B0,1F1,1B1"}) ==
        Texts{"schedule-order rank 0, step 3: 0W1 before its input gradient (I)"});
  CHECK(problems_of({"0B0,0F0,0F1,0B1", "1F0,1B0,1F1,1B1"}) ==
        Texts{"schedule-order rank 0, step 0: 0B0 before its forward"});
  CHECK(problems_of({"0F0,0B0,0F1,0B1", "1F0,1B0,1F1,1I1"}) ==
        Texts{"schedule-missing rank 1: stage 1 has no weight gradient (W) of microbatch 1"});
  CHECK(problems_of({"0F0,0B0", "1F0,1B0,1F1,1B1"}) ==
        Texts{"schedule-missing rank 0: stage 0 has no forward (F) of microbatch 1",
              "schedule-missing rank 0: stage 0 has no backward (B, or I and W) of microbatch 1"});
  CHECK(problems_of({"0F0,0F2,0B0,0F1,0B1", "1F0,1B0,1F1,1B1"}) ==
        Texts{"schedule-microbatch-range rank 0, step 1: 0F2 names microbatch 2"});
  CHECK(problems_of({"0F0,0B0,0F1,0B1", "1F0,1B0,1F1,1B1,2F0"}) ==
        Texts{"schedule-stage-range rank 1, step 4: 2F0 names stage 2"});
  CHECK(problems_of({"0F0,0B0,0F1,0B1", "1F0,1B0,0F0"}) ==
        Texts{"schedule-stage-twice rank 1, step 2: 0F0: stage 0 is also on rank 0"});
  CHECK(problems_of({"0F0,0B0,0F1,0B1,1F0,1B0,1F1,1B1", ",,"}) == Texts{"schedule-idle-rank rank 1: no actions"});
  CHECK(problems_of({"0F0,0B0,0F1,0B1"}) == Texts{"schedule-ranks the schedule has 1 row for 2 pipeline ranks"});
  CHECK(problems_of({"0F0,(0F1;0B0)OVERLAP_F_B,0B1", "1F0,(1F1;1B1)OVERLAP_F_B,1B0"}) ==
        Texts{"schedule-order rank 1, step 1: the backward of (1F1;1B1)OVERLAP_F_B needs its forward"});
  // Only the stage and microbatch of communication are checked.
  CHECK(problems_of({"0UNSHARD,0F0,0SEND_F9,0B0,0F1,0B1", "1F0,1B0,1F1,1B1,1REDUCE_GRAD,5RESHARD"}) ==
        Texts{"schedule-microbatch-range rank 0, step 2: 0SEND_F9 names microbatch 9",
              "schedule-stage-range rank 1, step 5: 5RESHARD names stage 5"});
}

TEST_CASE("a stage that is on no rank is reported", "[schedule]") {
  const auto problems = validate(table({"0F0,0B0", "2F0,2B0"}), {2, 3, 1});
  CHECK(ids(problems) == std::vector<std::string>{"schedule-stages"});
  CHECK_THAT(problems[0].message, Catch::Contains("stage 1 is on no rank"));
}

TEST_CASE("a table for evaluation may have only forward passes", "[schedule]") {
  CHECK(problems_of({"0F0,0F1", "1F0,1F1"}, Purpose::kEvaluation).empty());
  CHECK(problems_of({"0F0,0F1,0B0", "1F0"}, Purpose::kEvaluation) ==
        Texts{"schedule-backward-in-evaluation rank 0, step 2: 0B0 in a table for evaluation",
              "schedule-missing rank 1: stage 1 has no forward (F) of microbatch 1"});
}

TEST_CASE("impossible table shapes are refused", "[schedule]") {
  CHECK(ids(validate({}, {0, 1, 1})) == std::vector<std::string>{"schedule-too-large"});
  CHECK(ids(validate({}, {1, 4096, 65536})) == std::vector<std::string>{"schedule-too-large"});
}

}  // namespace automodel::schedule
