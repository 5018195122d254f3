// Plans of recipes/gpu beside what one H200 and one H100 measured of them (test/golden/gpu).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "arch/counts.h"
#include "estimate/score_time.h"
#include "golden_folder.h"
#include "planned.h"

namespace automodel::estimate {
namespace {

std::vector<nlohmann::json> rows() {
  std::ifstream file(golden_folder() + "/gpu/steps.jsonl");
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(file, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}
EstimatedPlan planned(const nlohmann::json& row) {
  const auto path = golden_folder() + "/../../recipes/gpu/" + row.at("recipe").get<std::string>() + ".yaml";
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto changes = row.value("replaced", std::map<std::string, std::string>());
  for (const auto& [from, to] : changes) text.replace(text.find(from), from.size(), to);
  return test::planned(
      text + "\nhardware: {profile: " + row.at("profile").get<std::string>() + "}\n" + row.value("sections", ""),
      {.world_size = row.value("ranks", 1)});
}
double error(double planned, double measured) {
  return std::abs(planned / measured - 1);
}

}  // namespace

TEST_CASE("steps on a GPU are estimated within a tenth of those measured", "[plan]") {
  REQUIRE(rows().size() == 13);
  for (const auto& row : rows()) {
    if (!row.contains("step_s")) continue;
    const auto plan = planned(row);
    const double measured = row.at("step_s");
    INFO(row.at("recipe") << ": planned " << plan.estimate->time.step << " s, measured " << measured << " s");
    CHECK(error(plan.estimate->time.step, measured) < 0.1);
  }
}

// Two ranks that share a GPU take turns on it, so that their times say nothing, but each has its own memory.
TEST_CASE("memory on a GPU is estimated within a twentieth of that measured", "[plan]") {
  for (const auto& row : rows()) {
    const auto plan = planned(row);
    double most = 0;
    for (const auto& rank : plan.estimate->memory.ranks) most = std::max(most, rank.most().tensors());
    const double measured = row.at("tensors_bytes");
    INFO(row.dump() << ": planned " << most / measured << " of what was measured");
    CHECK(error(most, measured) < 0.05);
  }
}

TEST_CASE("attention on a GPU is estimated by its GEMMs and the exponentials between them", "[plan]") {
  for (const auto& row : rows()) {
    if (!row.contains("attention_us")) continue;
    const auto plan = planned(row);
    const auto& spec = plan.model->spec;
    const double flops = 4096 * arch::layer_score_flops_per_token(spec, 0, 4096);
    const auto time = score_time(spec, 0, flops, 2, 4096, 1, plan.estimate->hardware);
    INFO(row.at("recipe") << ": " << time.forward * 1e6 << " and " << time.backward * 1e6 << " us");
    // The GPU's clock follows the power that the kernels around it draw: a fifth apart between recipes.
    CHECK(error(time.forward * 1e6, row.at("attention_us")[0]) < 0.2);
    CHECK(error(time.backward * 1e6, row.at("attention_us")[1]) < 0.1);
  }
}

TEST_CASE("products with weights on a GPU reach one share of the peak", "[plan]") {
  for (const auto& row : rows()) {
    if (!row.contains("products_ms")) continue;
    const auto plan = planned(row);
    const auto& spec = plan.model->spec;
    const double attention = 3 * 4096 * spec.layers * arch::layer_score_flops_per_token(spec, 0, 4096);
    const double flops = plan.estimate->time.flops / (plan.batch.runs * plan.batch.microbatches) - attention;
    const auto& hardware = plan.estimate->hardware;
    INFO(row.at("recipe") << ": " << flops / (hardware.peak * hardware.forward_efficiency) * 1e3 << " ms");
    CHECK(error(flops / (hardware.peak * hardware.forward_efficiency) * 1e3, row.at("products_ms")) < 0.05);
  }
}

TEST_CASE("the optimizer on a GPU moves its states, casts the weights and sets gradients to zero", "[plan]") {
  for (const auto& row : rows()) {
    if (!row.contains("optimizer_ms")) continue;
    const auto plan = planned(row);
    // Kernels of the update and the norm, without casts (6 bytes) and zeros (4), which are 10 of 42 bytes.
    const double update = plan.estimate->time.optimizer * 32 / 42;
    INFO(row.at("recipe") << ": " << update * 1e3 << " ms");
    CHECK(error(update * 1e3, row.at("optimizer_ms")) < 0.15);
  }
}

}  // namespace automodel::estimate
