// `automodel schedule`: schedules without a recipe.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "cli/program.h"

namespace automodel {
namespace {

using nlohmann::json;

json run_json(const test::TemporaryFolder& folder, const std::string& words) {
  const auto run = test::run_program(folder, "schedule " + words + " --json");
  INFO(words << "\n" << run.out << run.err);
  REQUIRE(run.code == 0);
  return json::parse(run.out);
}

}  // namespace

TEST_CASE("schedule prints a named schedule, its makespan, bound, peaks and proof", "[cli]") {
  const test::TemporaryFolder folder;
  const auto made = run_json(folder, "vhalf --pp-size 4 --microbatches 8");
  CHECK(made.at("schedule") == "V-Half");
  CHECK(made.at("pp_size") == 4);
  CHECK(made.at("stages_per_rank") == 2);
  CHECK(made.at("style") == "v");
  CHECK(made.at("microbatches") == 8);
  CHECK(made.at("ranks").size() == 4);
  CHECK(made.at("ranks")[0].get<std::string>().starts_with("0F0,0F1,"));
  CHECK(made.at("makespan") == 53);
  CHECK(made.at("lower_bound").get<double>() <= 53);
  CHECK(made.at("peak_activations") == json({6, 6, 6, 6}));
  CHECK(made.at("bubble_fraction").get<double>() == Approx(1 - 48.0 / 53));
  CHECK(made.at("deadlock_free") == true);
  const auto text = test::run_program(folder, "schedule 1f1b --pp-size 2 --microbatches 3");
  REQUIRE(text.code == 0);
  CHECK_THAT(text.out, Catch::StartsWith("schedule  1F1B: 2 stages on 2 ranks (loop), 3 microbatches\nrank 0  F0 F1"));
  CHECK_THAT(text.out, Catch::Contains("makespan  12, at most"));
  CHECK_THAT(text.out, Catch::Contains("proof     every message has its receive"));
}

TEST_CASE("schedule search keeps the limit, exports CSV files, and reads them again", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("costs.json", R"({"forward": [1, 1.6], "backward_input": [1, 1.6], "backward_weight": [1, 1.5],
                                 "comm": 0.05})");
  const std::string sizes = "search --pp-size 2 --microbatches 4 --costs costs.json --memory-limit 1.5";
  const auto made = run_json(folder, sizes + " -o found.csv --timeline found.svg");
  CHECK(made.at("makespan").get<double>() == Approx(25.2));
  for (const double peak : made.at("peak_activations")) CHECK(peak <= 1.5);
  CHECK(folder.read("found.svg").starts_with("<svg"));
  const auto again = run_json(folder, "found.csv --costs costs.json");
  CHECK(again.at("ranks") == made.at("ranks"));
  CHECK(again.at("makespan") == made.at("makespan"));
  run_json(folder, sizes + " -o lowered.csv --format lowered");
  CHECK_THAT(folder.read("lowered.csv"), Catch::Contains("0SEND_F0"));
  CHECK(run_json(folder, "lowered.csv --costs costs.json").at("ranks") == made.at("ranks"));
  // The estimate of a plan is a set of costs.
  folder.write("plan.json", R"({"time": {"step": 1, "stages": [
    {"forward": 1, "backward_input": 1, "backward_weight": 1, "backward": 2},
    {"forward": 1.6, "backward_input": 1.6, "backward_weight": 1.5, "backward": 3.1}]}})");
  CHECK(run_json(folder, "search --pp-size 2 --microbatches 4 --costs plan.json --memory-limit 1.5").at("makespan") ==
        Approx(24.8));
  // One heavy stage decides: the output says so.
  folder.write("heavy.json", R"({"forward": [1, 4], "backward_input": [1, 4], "backward_weight": [1, 4]})");
  const auto bounded = test::run_program(folder, "schedule search --pp-size 2 --microbatches 8 --costs heavy.json");
  CHECK_THAT(bounded.out, Catch::Contains("bounded   rank 1 (stage 1) works"));
}

TEST_CASE("schedule refuses wrong input with one message, the rule and the nearest possible value", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("negative.json", R"({"forward": [1, -2]})");
  folder.write("long.json", R"({"forward": [1, 2, 3]})");
  folder.write("infinite.json", R"({"forward": [1, 1e999]})");
  folder.write("text.json", R"({"forward": ["1", 2]})");
  folder.write("key.json", R"({"forwards": 1})");
  folder.write("broken.json", R"({"forward": )");
  struct Refusal {
    std::string words;
    std::string message;
    int code = 2;
  };
  const std::string sizes = " --pp-size 2 --microbatches 4";
  for (const auto& refusal : std::vector<Refusal>{
           {"1F1B" + sizes + " --costs negative.json", "nearest possible value is 0"},
           {"1F1B" + sizes + " --costs long.json", "give 2 numbers, one per stage"},
           {"1F1B" + sizes + " --costs infinite.json", "JSON has no NaN or infinity"},
           {"1F1B" + sizes + " --costs text.json", "forward has string where a number belongs"},
           {"1F1B" + sizes + " --costs key.json", "did you mean 'forward'?"},
           {"1F1B" + sizes + " --costs broken.json", "no valid JSON"},
           {"1F1B" + sizes + " --costs none.json", "missing-file"},
           {"search" + sizes + " --memory-limit 0.5", "at least 1"},
           {"search" + sizes + " --memory-limit nan", "at least 1"},
           {"GPipe" + sizes + " --memory-limit 3", "a limit of at least 4", 3},
           {"DualPipeV --pp-size 2 --microbatches 3", "at least as many microbatches as stages: 4"},
           {"search --pp-size 2000 --microbatches 4", "1 to 1024"},
           {"search --pp-size 1024 --microbatches 60000", "at most"},
           {"search --style v" + sizes, "for example '--stages-per-rank 2'"},
           {"search --pp-size 0 --microbatches 4", "--pp-size"},
           {"search --microbatches 4", "--pp-size is required"},
           {"1F1B --pp-size 2", "--microbatches is required"},
           {"1F1B --style v" + sizes, "leave --style out"},
           {"1F2B" + sizes, "did you mean '1F1B'?"},
           {"none.csv", "no such file"},
       }) {
    INFO(refusal.words);
    const auto run = test::run_program(folder, "schedule " + refusal.words);
    CHECK(run.code == refusal.code);
    CHECK(run.out.empty());
    CHECK_THAT(run.err, Catch::Contains(refusal.message));
  }
}

}  // namespace automodel
