// Every schedule also completes if each message needs both sides at once, one message at a time on each rank. That is
// how NCCL runs a table, since it has one stream for messages, no tags and no buffers to send ahead into.
#include <catch2/catch.hpp>

#include "schedule/csv.h"
#include "schedule/generators.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/prove.h"

namespace automodel::schedule {
namespace {

std::string stuck(const Schedule& rows, const Placement& placement, const Shape& shape) {
  return to_text(prove_meetings(rows, placement, shape));
}

}  // namespace

TEST_CASE("every schedule completes even if each message blocks both ranks until they meet", "[schedule]") {
  int tables = 0;
  for (const auto& row : generators())
    for (const int ranks : {2, 3, 4, 8})
      for (const int stages : {1, 2, 3})
        for (const int microbatches : {1, 2, 3, 4, 6, 8, 9, 16, 24}) {
          const Request request{ranks, stages, microbatches};
          if (!check_request(row, request).empty()) continue;
          const auto made = make_schedule(row, request);
          INFO(row.name << " ranks " << ranks << " stages per rank " << stages << " microbatches " << microbatches);
          CHECK(stuck(made.training, made.placement, made.shape) == "");
          CHECK(stuck(made.evaluation, made.placement, made.shape) == "");
          ++tables;
        }
  CHECK(tables > 300);
}

TEST_CASE("crossed receives are refused because they deadlock over NCCL", "[schedule]") {
  const auto made = [](const std::string& first, const std::string& second) {
    auto read = read_csv(first + "\n" + second + "\n", "t.csv", CsvFormat::kComputeComms);
    const auto origin = read.origin;
    auto out = make_schedule(std::move(read), CsvFormat::kComputeComms, {2, 2, 2});
    REQUIRE(to_text(out.problems) == "");  // receives are posted without waiting
    return prove_meetings(out.training, out.placement, out.shape, origin);
  };
  const std::string second = "1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD";
  const auto crossed = made("0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1,0REDUCE_GRAD", second);
  REQUIRE(crossed.size() == 1);
  CHECK(crossed[0].id == "schedule-meeting");
  CHECK(crossed[0].message ==
        "over NCCL, where both ranks must stand at a message, the ranks wait for each other: rank 0 waits at step 3 "
        "`0RECV_B0` for `1SEND_B0` of rank 1, which waits at step 3 `1RECV_F1` for `0SEND_F1` of rank 0");
  CHECK(crossed[0].where.line == 1);
  CHECK(crossed[0].where.column == 18);
  CHECK(made("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD", second).empty());
}

}  // namespace automodel::schedule
