// `automodel plan --failures`.
#include <map>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "cli/program.h"

namespace automodel {
namespace {

using nlohmann::json;

const std::string kRecipe =
    "model: {config: {model_type: llama, hidden_size: 256, intermediate_size: 512, num_hidden_layers: 8, "
    "num_attention_heads: 8, num_key_value_heads: 8, vocab_size: 1024, max_position_embeddings: 512}}\n"
    "dataset: {_target_: mock, vocab_size: 1024, seq_length: 512}\n"
    "step_scheduler: {global_batch_size: 64, local_batch_size: 4}\n"
    "device: cuda\n"
    "hardware: {profile: h100}\n"
    "distributed: {strategy: fsdp2, tp_size: 2}\n";

TEST_CASE("losing hosts reduces the data-parallel size, and gradient accumulation keeps the batch", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kRecipe);
  const auto run = test::run_program(folder, "plan r.yaml --world-size 32 --gpus-per-node 8 --failures --json");
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto rows = json::parse(run.out).at("failures");
  REQUIRE(rows.size() == 3);
  // 24 ranks give dp 12, which does not divide 64 sequences into local batches of 4; dp 8 does.
  CHECK(rows[0].at("ranks_left") == 24);
  CHECK(rows[0].at("dp_size") == 8);
  CHECK(rows[0].at("accumulation") == 2);
  CHECK(rows[2].at("ranks_left") == 8);
  CHECK(rows[2].at("dp_size") == 4);
  CHECK(rows[2].at("accumulation") == 4);
  for (const auto& row : rows) {
    CHECK(row.at("global_batch_size") == 64);
    CHECK(row.at("slower").get<double>() > 1);
    CHECK(row.at("fit") == "fits");
  }
  // Each row matches the plan of its mesh.
  const auto plan = test::run_program(folder, "plan r.yaml --world-size 8 --gpus-per-node 8 --json");
  CHECK(json::parse(plan.out).at("time").at("step").get<double>() == Approx(rows[2].at("step_seconds").get<double>()));
}

TEST_CASE("a mesh that needs every rank is replaced by another one, and a single host cannot be lost", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kRecipe);
  const auto run = test::run_program(
      folder,
      "plan r.yaml --world-size 16 --gpus-per-node 8 --failures --distributed.tp_size 4 --distributed.cp_size 4");
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(run.out.find("meshes that differ from the recipe's in more than dp_size") != std::string::npos);
  CHECK(run.out.find("8 ranks: ") != std::string::npos);
  const auto one = test::run_program(folder, "plan r.yaml --world-size 8 --gpus-per-node 8 --failures");
  CHECK(one.code == 0);
  CHECK(one.out.find("ranks left") == std::string::npos);
  CHECK(one.out.find("of the time makes new steps") != std::string::npos);
  const auto part = test::run_program(folder, "plan r.yaml --world-size 4 --gpus-per-node 8 --failures");
  CHECK(part.code == 2);
  CHECK(part.err.find("error[usage]: 4 ranks do not fill hosts of 8 ranks each") != std::string::npos);
}

TEST_CASE("what failures do to the run is printed with what would help", "[cli]") {
  const test::TemporaryFolder folder;
  folder.write("r.yaml", kRecipe);
  const std::string words =
      "plan r.yaml --world-size 16 --gpus-per-node 8 --failures --step_scheduler.max_steps 1000000000 "
      "--hardware.failures.host 100 ";
  const auto run = test::run_program(folder, words + "--json");
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto made = json::parse(run.out).at("run");
  CHECK(made.at("steps") == 1000000000);
  CHECK(made.at("hosts") == 2);
  CHECK(made.at("ends") == true);
  // Two hosts, with the other rates at their defaults.
  CHECK(made.at("failures_per_day").get<double>() ==
        Approx((16 * 0.111 + 2 * (100 + 0.139 + 0.185)) / 365.25).epsilon(1e-6));
  CHECK(made.at("end_seconds")[0] < made.at("end_seconds")[2]);
  std::map<std::string, double> goodput;
  for (const auto& each : made.at("changes"))
    goodput[each.at("key").get<std::string>()] = each.at("goodput").get<double>();
  CHECK(goodput.at("hardware.failures.spare_hosts") > made.at("goodput").get<double>());
  CHECK(goodput.at("all of these") >= goodput.at("hardware.failures.spare_hosts"));
  const auto text = test::run_program(folder, words);
  for (const char* part : {"1000000000 steps of ", "hosts 0.55, network", "fault_tolerance.max_restarts is 0",
                           "  hardware.failures.spare_hosts=1 ", "  checkpoint.memory_every_steps="})
    CHECK(text.out.find(part) != std::string::npos);
  const auto hopeless = test::run_program(folder, words + "--checkpoint.enabled false");
  CHECK(hopeless.out.find("makes no more progress") != std::string::npos);
  const auto wrong = test::run_program(folder, words + "--hardware.failures.gpu -1");
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("error[bad-value]") != std::string::npos);
  CHECK(wrong.err.find("must be at least 0") != std::string::npos);
}

}  // namespace
}  // namespace automodel
