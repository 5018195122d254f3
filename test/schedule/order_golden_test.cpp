// Every recorded table of torch.distributed.pipelining 2.11, compared action by action.
#include <catch2/catch.hpp>

#include "golden.h"
#include "schedule/lower.h"
#include "schedule/pipeline_schedule.h"

namespace automodel::schedule {
namespace {

struct Counts {
  int orders = 0;
  int lowered = 0;
  int refused = 0;
};

/// `legal_here` selects the cases that torch refuses and this program allows.
template <class LegalHere>
Counts compare(const std::string& name, LegalHere&& legal_here) {
  const Generator& generator = generator_named(name);
  Counts counts;
  for (const auto& record : golden(name + ".json")) {
    const Request request{record["pp"], record["spr"], record["mb"]};
    INFO(name << " ranks " << request.ranks << " stages per rank " << request.stages_per_rank << " microbatches "
              << request.microbatches);
    if (record.contains("error")) {
      const bool refused = !check_request(generator, request).empty();
      CHECK(refused != legal_here(request));
      counts.refused += refused ? 1 : 0;
      continue;
    }
    const PipelineSchedule made = make_schedule(generator, request);
    REQUIRE(made.ok());
    CHECK(rows_text(made.order) == record["order"].get<std::vector<std::string>>());
    ++counts.orders;
    if (!record.contains("lowered")) continue;
    CHECK(rows_text(made.training) == record["lowered"].get<std::vector<std::string>>());
    if (record.contains("stage_to_rank"))
      CHECK(made.placement.rank_of_stage() == record["stage_to_rank"].get<std::vector<int>>());
    ++counts.lowered;
  }
  return counts;
}

bool none(const Request&) {
  return false;
}

}  // namespace

TEST_CASE("GPipe and 1F1B match the orders that torch executes", "[schedule][golden]") {
  const Counts gpipe = compare("GPipe", none);
  CHECK((gpipe.orders == 30 && gpipe.lowered == 18 && gpipe.refused == 0));
  // Torch's runtime cannot run 1F1B with fewer microbatches than stages, although the order is valid.
  const Counts one_f_one_b =
      compare("1F1B", [](const Request& request) { return request.microbatches < request.stages(); });
  CHECK((one_f_one_b.orders == 14 && one_f_one_b.lowered == 14 && one_f_one_b.refused == 0));
}

TEST_CASE("schedules run with fewer microbatches than stages if their order allows it", "[schedule]") {
  const PipelineSchedule made = make_schedule(generator_named("1F1B"), {4, 1, 2});
  CHECK(rows_text(made.order) ==
        std::vector<std::string>{"0F0,0F1,0B0,0B1", "1F0,1F1,1B0,1B1", "2F0,2F1,2B0,2B1", "3F0,3B0,3F1,3B1"});
  for (const std::string name :
       {"GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble"}) {
    const Generator& row = generator_named(name);
    for (const int microbatches : {1, 2, 3})
      CHECK(make_schedule(row, {4, row.single_stage ? 1 : 2, microbatches}).ok());
  }
}

TEST_CASE("Interleaved1F1B matches torch's table", "[schedule][golden]") {
  const Counts counts = compare("Interleaved1F1B", none);
  CHECK((counts.orders == 116 && counts.lowered == 72 && counts.refused == 4));
}

TEST_CASE("LoopedBFS matches torch's table", "[schedule][golden]") {
  const Counts counts = compare("LoopedBFS", none);
  CHECK((counts.orders == 120 && counts.lowered == 72 && counts.refused == 0));
}

TEST_CASE("InterleavedZeroBubble matches torch's table", "[schedule][golden]") {
  const Counts counts = compare("InterleavedZeroBubble", none);
  CHECK((counts.orders == 116 && counts.lowered == 72 && counts.refused == 4));
}

TEST_CASE("ZBVZeroBubble matches torch's table", "[schedule][golden]") {
  const Counts counts = compare("ZBVZeroBubble", none);
  CHECK((counts.orders == 30 && counts.lowered == 18 && counts.refused == 90));
}

TEST_CASE("DualPipeV matches torch's table", "[schedule][golden]") {
  const Counts counts = compare("DualPipeV", none);
  CHECK((counts.orders == 20 && counts.lowered == 9 && counts.refused == 100));
}

}  // namespace automodel::schedule
