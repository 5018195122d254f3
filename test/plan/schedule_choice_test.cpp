#include "plan/schedule_choice.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include <catch2/catch.hpp>

#include "advice.h"
#include "golden_file.h"

namespace automodel::plan {
namespace {

/// A file that is there while the test runs.
class TemporaryFile {
 public:
  TemporaryFile() : path_(std::filesystem::temp_directory_path() / "automodel_schedule_choice_test.csv") {
    std::ofstream(path_) << "0F0\n";
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("batches fit schedules as NeMo AutoModel and torch decide", "[plan][golden]") {
  const TemporaryFile csv;
  const std::set<std::string> single = {"1f1b", "gpipe"};
  const std::set<std::string> full = {"1f1b", "dualpipev"};
  int accepted = 0;
  int refused = 0;
  int skipped = 0;
  int warned = 0;
  for (const auto& row : golden::load("plan/build_schedule.json")) {
    const auto& in = row["in"];
    CAPTURE(in.dump());
    ScheduleRequest request;
    const bool named = in[0].is_string();
    if (named) request.name = in[0];
    if (!in[1].is_null()) request.csv = in[1] == "sched.csv" ? csv.path() : in[1].get<std::string>();
    if (request.name == "nope" || (!named && !request.csv)) {  // names are looked up elsewhere
      ++skipped;
      continue;
    }
    request.microbatch_size = in[2];
    request.batch_size = in[3];
    request.local_stages = static_cast<int>(in[4].size());
    request.stages = in[5];
    request.single_stage = single.count(request.name) > 0;
    request.needs_full_pipeline = !request.csv && full.count(request.name) > 0;
    Diagnostics problems;
    const auto choice = choose_schedule(request, problems);
    if (row.contains("error")) {
      CHECK_FALSE(choice);
      CHECK_FALSE(problems.empty());
      ++refused;
      continue;
    }
    if (request.single_stage && request.local_stages > 1) {  // the original then runs the first stage alone
      CHECK_FALSE(choice);
      ++skipped;
      continue;
    }
    REQUIRE(choice);
    CHECK(choice->microbatches == row["n"].get<int>());
    const bool expected_warning = row["log"].size() > 1;
    CHECK(choice->warnings.empty() != expected_warning);
    warned += expected_warning ? 1 : 0;
    const auto numbers = std::to_string(choice->microbatches) + " microbatch";
    CHECK(row["log"].back().get<std::string>().find(numbers) != std::string::npos);
    CHECK(choice->summary.find(numbers) != std::string::npos);
    CHECK(choice->summary.find(std::to_string(request.local_stages) + " stage") != std::string::npos);
    ++accepted;
  }
  CHECK(accepted == 79);
  CHECK(refused == 42);
  CHECK(skipped == 3);
  CHECK(warned == 13);
}

TEST_CASE("a batch that cannot be cut is refused with sizes that can", "[plan]") {
  Diagnostics problems;
  CHECK_FALSE(choose_schedule({"gpipe", {}, 3, 8, 4, 1, true, false}, problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].id == "indivisible");
  CHECK(problems[0].help ==
        "pp_batch_size must be a multiple of pp_microbatch_size; use pp_microbatch_size: 2, pp_microbatch_size: 4, "
        "pp_batch_size: 6 or pp_batch_size: 9");
  problems.clear();
  CHECK_FALSE(choose_schedule({"1F1B", {}, 4, 8, 4, 1, true, true}, problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].id == "schedule-microbatches");
  CHECK(problems[0].help ==
        "this schedule needs at least as many microbatches as stages; use pp_microbatch_size: 2 or pp_batch_size: 16");
}

TEST_CASE("stages of a rank must suit the schedule", "[plan]") {
  Diagnostics problems;
  CHECK_FALSE(choose_schedule({"1F1B", {}, 1, 8, 8, 2, true, false}, problems));
  CHECK(problems[0].id == "schedule-single-stage");
  problems.clear();
  CHECK_FALSE(choose_schedule({"x", {}, 0, -1, 4, 0, false, false}, problems));
  CHECK(problems.size() == 3);
}

TEST_CASE("every advised batch and microbatch size passes", "[plan][property]") {
  std::mt19937 random(5);
  int advised = 0;
  for (int repeat = 0; repeat < 5000; ++repeat) {
    ScheduleRequest request;
    request.microbatch_size = static_cast<int>(random() % 12) + 1;
    request.batch_size = static_cast<int>(random() % 40) + 1;
    request.stages = static_cast<int>(random() % 10) + 1;
    request.needs_full_pipeline = random() % 2 == 0;
    Diagnostics problems;
    if (choose_schedule(request, problems)) continue;
    REQUIRE(problems.size() == 1);
    INFO(problems[0].help);
    for (const auto& value : advised_values(problems[0].help)) {
      auto changed = request;
      (value.key == "pp_batch_size" ? changed.batch_size : changed.microbatch_size) = value.number();
      Diagnostics none;
      CHECK(choose_schedule(changed, none));
      ++advised;
    }
  }
  CHECK(advised > 4000);
}

}  // namespace automodel::plan
