#include "schedule/csv.h"

#include <map>

#include <catch2/catch.hpp>

#include "golden.h"
#include "golden_folder.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/torch_waits.h"

namespace automodel::schedule {
namespace {

/// The first problem that a file must give.
struct Refusal {
  std::string id;
  int line;
  int column;
  std::string message;
};

void check_refusal(const Diagnostics& problems, const Refusal& expected) {
  REQUIRE_FALSE(problems.empty());
  INFO(to_text(problems));
  CHECK(problems[0].id == expected.id);
  CHECK(problems[0].where.line == expected.line);
  CHECK(problems[0].where.column == expected.column);
  CHECK_THAT(problems[0].message, Catch::Contains(expected.message));
  CHECK_FALSE(problems[0].help.empty());
}

}  // namespace

TEST_CASE("torch's schedule files load as in torch, broken ones are refused with the location", "[schedule][golden]") {
  const std::map<std::string, Refusal> refusals = {
      // Accepted by torch, although they compute something unintended or never end.
      {"ok_F_without_mb.csv", {"schedule-csv-cell", 1, 3, "0F has no microbatch"}},
      {"ok_trailing_garbage.csv", {"schedule-csv-cell", 1, 4, "unexpected 'zzz' after 0F0"}},
      {"ok_duplicate_F.csv", {"schedule-duplicate", 1, 5, "rank 0, step 1: 0F0 appears twice"}},
      {"ok_mb_out_of_range.csv", {"schedule-microbatch-range", 1, 1, "0F7 names microbatch 7"}},
      {"ok_comms_missing_sends.csv", {"schedule-recv", 1, 5, "0B0 without having received its data"}},
      {"ok_comms_deadlock_unchecked.csv", {"schedule-recv", 2, 1, "1F0 without having received its data"}},
      // Refused by torch too.
      {"bad_token.csv", {"schedule-csv-cell", 1, 2, "unknown action 'G'"}},
      {"bad_lowercase.csv", {"schedule-csv-cell", 1, 2, "unknown action 'f'"}},
      {"bad_comm_in_compute_only.csv", {"schedule-csv-communication", 1, 5, "step 1: 0SEND_F0"}},
      {"bad_reduce_grad_in_compute_only.csv", {"schedule-csv-communication", 1, 71, "step 22: 0REDUCE_GRAD"}},
      {"bad_comms_empty_cell.csv", {"schedule-csv-bubble", 1, 23, "rank 0, step 3: an empty cell"}},
      {"bad_empty_file.csv", {"schedule-csv-empty", 0, 0, "empty"}},
      {"bad_missing_row.csv", {"schedule-ranks", 0, 0, "1 row for 2 pipeline ranks"}},
      {"bad_extra_row.csv", {"schedule-ranks", 0, 0, "3 rows for 2 pipeline ranks"}},
      {"bad_blank_line.csv", {"schedule-ranks", 0, 0, "3 rows for 2 pipeline ranks"}},
      {"bad_missing_forward.csv", {"schedule-order", 1, 63, "rank 0, step 20: 0B3 before its forward"}},
      {"bad_missing_backward.csv",
       {"schedule-missing", 2, 1, "stage 3 has no backward (B, or I and W) of microbatch 2"}},
      {"bad_backward_before_forward.csv", {"schedule-order", 2, 11, "rank 1, step 4: 3B0 before its forward"}},
      {"bad_W_before_I.csv", {"schedule-order", 2, 14, "rank 1, step 4: 3W0 before its input gradient"}},
      {"bad_I_without_W.csv", {"schedule-missing", 2, 1, "stage 3 has no weight gradient (W) of microbatch 0"}},
      {"bad_stage_on_two_ranks.csv", {"schedule-stage-twice", 2, 2, "rank 1, step 1: 1F0: stage 1 is also on rank 0"}},
      {"bad_stage_out_of_range.csv", {"schedule-stage-range", 1, 71, "9F0 names stage 9"}},
      {"bad_more_stages_than_built.csv", {"schedule-stage-range", 1, 5, "2F0 names stage 2"}},
      {"bad_order_deadlock.csv",
       {"schedule-deadlock", 1, 5,
        "rank 0 waits at step 1 `0B0` for `1B0` of rank 1, which waits at step 0 `1F1` for `0F1` of rank 0"}},
  };
  int loaded = 0;
  int refused = 0;
  for (const auto& record : golden("csv_manifest.json")) {
    const std::string file = record["file"];
    INFO(file << ": " << record["note"].get<std::string>());
    const auto format = [&]() -> std::optional<CsvFormat> {
      for (const auto each : {CsvFormat::kComputeOnly, CsvFormat::kComputeComms})
        if (record["format"] == name_of(each)) return each;
      return std::nullopt;
    }();
    if (!format) {
      CHECK(file == "bad_format_name.csv");
      ++refused;
      continue;
    }
    const int ranks = record["pp"];
    const Shape shape{ranks, ranks * record["spr"].get<int>(), record["mb"]};
    const CsvTable read = load_csv(golden_path("csv/" + file), *format);
    const PipelineSchedule made = make_schedule(read, *format, shape);
    if (const auto refusal = refusals.find(file); refusal != refusals.end()) {
      check_refusal(made.problems, refusal->second);
      ++refused;
      continue;
    }
    CHECK(record["ok"].get<bool>());
    REQUIRE(to_text(made.problems) == "");
    CHECK(rows_text(made.training) == record["with_comms"].get<std::vector<std::string>>());
    for (const auto& [stage, rank] : record["stage_to_rank"].items())
      CHECK(made.placement.rank_of(Stage{std::stoi(stage)}) == rank.get<int>());
    ++loaded;
  }
  CHECK(loaded == 17);
  CHECK(refused == 25);
}

TEST_CASE("a table with CRLF as torch writes it is read and written back as the same CSV", "[schedule]") {
  const std::string file = read_file(golden_path("csv/dualpipev_pp2_mb6.compute_only.csv"));
  const CsvTable read = read_csv(file, "x.csv", CsvFormat::kComputeOnly);
  REQUIRE(read.problems.empty());
  CHECK(to_csv(read.schedule) == file);
}

TEST_CASE("all bad cells are reported, each with line, column, rank and step", "[schedule]") {
  const CsvTable read = read_csv("0F0, 0f1 ,,0B0\n1F0,1B0x,(1F1;1I1)OVERLAP_F_B\n", "my.csv", CsvFormat::kComputeOnly);
  CHECK(to_text(read.problems) ==
        "my.csv:1:7: error[schedule-csv-cell]: rank 0, step 1: unknown action 'f'\n"
        "    help: did you mean 'F'?\n"
        "my.csv:2:8: error[schedule-csv-cell]: rank 1, step 1: unexpected 'x' after 1B0\n"
        "    help: one action per cell; PyTorch would ignore the rest and run 1B0\n"
        "my.csv:2:15: error[schedule-csv-cell]: rank 1, step 2: an overlap is a forward and a full backward, not 1F1 "
        "and 1I1\n"
        "    help: write it as (0F3;7B0)OVERLAP_F_B\n");
}

TEST_CASE("rows may be ragged, end without a line break, or be blank", "[schedule]") {
  const CsvTable read = read_csv("0F0,,\r\n\n1F0", "x.csv", CsvFormat::kComputeOnly);
  REQUIRE(read.problems.empty());
  CHECK(rows_text(read.schedule) == std::vector<std::string>{"0F0,,", "", "1F0"});
  const auto problems = make_schedule(read, CsvFormat::kComputeOnly, {3, 2, 1}).problems;
  CHECK(ids(problems) == std::vector<std::string>{"schedule-idle-rank", "schedule-missing", "schedule-missing"});
  CHECK(problems[0].where.line == 2);
}

TEST_CASE("hostile files are refused before they use much time or memory", "[schedule]") {
  CHECK(ids(read_csv(std::string(5000, '\n'), "x", CsvFormat::kComputeOnly).problems) ==
        std::vector<std::string>{"schedule-too-large"});
  CHECK(ids(read_csv(std::string(kMaxCells + 1, ','), "x", CsvFormat::kComputeOnly).problems) ==
        std::vector<std::string>{"schedule-too-large"});
  // The list of problems is limited.
  const auto problems =
      read_csv(std::string(1000, 'x') + std::string(1000, ','), "x", CsvFormat::kComputeComms).problems;
  CHECK(problems.size() == kMostProblems + 1);
  CHECK(problems.back().message == "951 more problems like these");
  // Small file, large numbers.
  const CsvTable wide = read_csv("4095F65535\n", "x", CsvFormat::kComputeOnly);
  CHECK(ids(make_schedule(wide, CsvFormat::kComputeOnly, shape_of(wide.schedule)).problems) ==
        std::vector<std::string>{"schedule-too-large"});
}

TEST_CASE("a missing schedule file is reported with its path", "[schedule]") {
  const CsvTable none = load_csv("no/such/file.csv", CsvFormat::kComputeOnly);
  CHECK(to_text(none.problems) ==
        "no/such/file.csv: error[schedule-csv-file]: no such file\n"
        "    help: pp_schedule_csv names a file with one line a pipeline rank\n");
  CHECK(ids(load_csv(automodel::golden_folder(), CsvFormat::kComputeOnly).problems) ==
        std::vector<std::string>{"schedule-csv-file"});
}

}  // namespace automodel::schedule

namespace automodel::schedule {

TEST_CASE("complete tables of PyTorch 2.15 are written cell by cell and read again", "[schedule][golden]") {
  const auto recorded = golden("torch_2_15.json");
  int waits = 0;
  for (const auto& record : recorded) {
    const std::string name = record[0];
    const Request request{record[1], record[2], record[3]};
    INFO(name << " ranks " << request.ranks << " stages per rank " << request.stages_per_rank << " microbatches "
              << request.microbatches);
    const PipelineSchedule made = make_schedule(generator_named(name), request);
    std::string expected;
    for (const std::string row : record[4]) expected += row + "\r\n";
    CHECK(to_csv_with_waits(made.order, made.placement, made.shape) == expected);
    waits += static_cast<int>(expected.find("WAIT_SEND_F") != std::string::npos);
    const PipelineSchedule again =
        make_schedule(read_csv(expected, "x", CsvFormat::kComputeComms), CsvFormat::kComputeComms, made.shape);
    INFO(to_text(again.problems));
    REQUIRE(again.ok());
    CHECK(again.order == compute_only(made.order));
  }
  CHECK(waits > 40);
}

TEST_CASE("a wait of PyTorch 2.15 must follow what it waits for, once", "[schedule]") {
  const auto problems = [](const std::string& row, CsvFormat format) { return read_csv(row, "x", format).problems; };
  const auto comms = CsvFormat::kComputeComms;
  CHECK(problems("0F0,0SEND_F0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n", comms).empty());
  const auto early = problems("0F0,0WAIT_SEND_F0,0SEND_F0\n", comms);
  REQUIRE(early.size() == 1);
  CHECK(early[0].id == "schedule-wait");
  CHECK(early[0].where.column == 5);
  CHECK(ids(problems("0SEND_B0,0WAIT_SEND_B0,0WAIT_SEND_B0\n", comms)) == std::vector<std::string>{"schedule-wait"});
  CHECK(ids(problems("0REDUCE_GRAD\n1WAIT_REDUCE_GRAD,0WAIT_REDUCE_GRAD\n", comms)) ==
        std::vector<std::string>{"schedule-wait", "schedule-wait"});
  CHECK(ids(problems("0WAIT_REDUCE_GRAD\n", CsvFormat::kComputeOnly)) ==
        std::vector<std::string>{"schedule-csv-communication"});
  for (const char* wrong : {"0WAIT_F0", "0WAIT_SEND_F", "0WAIT_RECV_F0", "WAIT_SEND_F0", "0WAIT_REDUCE_GRAD1"})
    CHECK(ids(problems(std::string(wrong) + "\n", comms)) == std::vector<std::string>{"schedule-csv-cell"});
}

}  // namespace automodel::schedule
