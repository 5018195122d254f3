// `automodel plan --compare-schedules`.
#include <algorithm>
#include <set>
#include <sstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "cli/program.h"

namespace automodel {
namespace {

using nlohmann::json;

const std::string kRecipe =
    "model: {config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 8, "
    "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 260, max_position_embeddings: 128}}\n"
    "dataset: {_target_: mock, vocab_size: 260, seq_length: 64}\n"
    "step_scheduler: {global_batch_size: 8, local_batch_size: 8}\n"
    "device: cpu\n"
    "distributed: {strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}}\n";

TEST_CASE("plan --compare-schedules lists every schedule in one table, fastest first", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kRecipe);
  const auto run = test::run_program(folder, "plan r.yaml --compare-schedules --json --timeline all.svg");
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto rows = json::parse(run.out).at("schedules");
  std::set<std::string> names;
  double before = 0, one_f_one_b = 0, gpipe_in_flight = 0;
  for (const auto& row : rows) {
    INFO(row.dump());
    REQUIRE(row.at("ok") == true);
    names.insert(row.at("schedule"));
    CHECK(row.at("step_seconds") >= before);
    before = row.at("step_seconds");
    if (row.at("schedule") == "1F1B") one_f_one_b = row.at("step_seconds");
    if (row.at("schedule") == "GPipe") gpipe_in_flight = row.at("peak_in_flight");
  }
  for (const char* name :
       {"GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"}) {
    INFO(name);
    CHECK(names.contains(name));
  }
  CHECK(gpipe_in_flight == 8);
  // Each row matches the plan of that schedule.
  const auto plan = test::run_program(folder, "plan r.yaml --json");
  CHECK(json::parse(plan.out).at("time").at("step").get<double>() == Approx(one_f_one_b));
  const auto picture = folder.read("all.svg");
  for (const auto& name : names) CHECK(picture.find(name) != std::string::npos);
}

TEST_CASE("charts of --compare-schedules show whole steps, also of schedules with a pass per accumulation step",
          "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kRecipe);
  const auto run =
      test::run_program(folder,
                        "plan r.yaml --compare-schedules --json --timeline all.svg "
                        "--step_scheduler.global_batch_size 32 --distributed.pipeline.merge_accumulation false");
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto picture = folder.read("all.svg");
  std::size_t charts = 0;
  for (auto at = picture.find(" microbatches in "); at != std::string::npos;
       at = picture.find(" microbatches in ", at + 1)) {
    CHECK(picture.substr(at - 2, 2) == "32");
    ++charts;
  }
  CHECK(charts == json::parse(run.out).at("schedules").size());
}

TEST_CASE("impossible schedules are listed with the reason, and a recipe without a pipeline is refused", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kRecipe);
  const auto run = test::run_program(folder, "plan r.yaml --compare-schedules --json --distributed.pp_size 4");
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto rows = json::parse(run.out).at("schedules");  // 8 layers cannot fill 16 stages
  CHECK(std::any_of(rows.begin(), rows.end(), [](const json& row) { return row.at("ok") == false; }));
  for (const auto& row : rows)
    if (row.at("ok") == false) CHECK_FALSE(row.at("reason").get<std::string>().empty());
  const auto none = test::run_program(folder, "plan r.yaml --compare-schedules --distributed.pp_size 1");
  // The table of plans fits 80 columns; what cannot be planned follows.
  const auto text = test::run_program(folder, "plan r.yaml --compare-schedules --distributed.pp_size 4").out;
  CHECK(text.find("  ZBVZeroBubble x2 ") != std::string::npos);
  CHECK(text.find("\nrefused\n  ") > text.find("  1F1B "));
  std::istringstream lines(text.substr(0, text.find("refused\n")));
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= (line.find("x2: two") == 2 ? 100U : 80U));
  CHECK(none.code == 2);
  CHECK(none.err.find("error[usage]: --compare-schedules compares pipeline schedules") != std::string::npos);
}

}  // namespace
}  // namespace automodel
