#include "plan/virtual_stages.h"

#include <map>
#include <random>

#include <catch2/catch.hpp>

#include "advice.h"
#include "golden_file.h"
#include "plan/model_split.h"
#include "plan/stage_rounding.h"
#include "schedule/placement.h"

namespace automodel::plan {
namespace {

/// The request with each "key: value" of a help text applied, one at a time.
std::vector<VirtualStagesRequest> changes(const VirtualStagesRequest& request, const std::string& help) {
  std::vector<VirtualStagesRequest> out;
  for (const auto& advised : advised_values(help)) {
    out.push_back(request);
    if (advised.key == "pp_size")
      out.back().pp_size = advised.number();
    else if (advised.key == "layers_per_stage")
      out.back().layers_per_stage = advised.number();
    else if (advised.key == "round_virtual_stages_to_pp_multiple")
      out.back().rounding = rounding_named(advised.value).value();
    else
      FAIL("advice on " << advised.key);
  }
  if (help.find("leave layers_per_stage out") != std::string::npos) {
    out.push_back(request);
    out.back().layers_per_stage = std::nullopt;
  }
  return out;
}

/// Whether the request is accepted and every stage gets a layer.
bool works(const VirtualStagesRequest& request) {
  Diagnostics problems;
  const auto stages = calculate_virtual_stages(request, problems);
  return stages && stages->stages <= request.layers;
}

}  // namespace

TEST_CASE("virtual stages are counted as in NeMo AutoModel", "[plan][golden]") {
  const std::map<std::string, std::string> ids = {
      {"divisible", "indivisible"}, {"multi", "schedule-multi-stage"}, {"single", "schedule-single-stage"}};
  std::map<std::string, int> seen;
  for (const auto& row : golden::load("plan/virtual_stages.json")) {
    CAPTURE(row.dump());
    VirtualStagesRequest request;
    request.layers = row[0];
    if (!row[1].is_null()) request.layers_per_stage = row[1].get<int>();
    request.pp_size = row[2];
    request.single_stage = row[3] == 1;
    if (!row[4].is_null()) {
      const auto rounding = row[4].is_string() ? rounding_named(row[4].get<std::string>()) : std::nullopt;
      if (!rounding) {
        CHECK(row[5] == "rounding");
        ++seen["rounding"];
        continue;
      }
      request.rounding = *rounding;
    }
    Diagnostics problems;
    const auto stages = calculate_virtual_stages(request, problems);
    if (row[5].is_number()) {
      CHECK(stages == VirtualStages{row[5], row[6]});
      CHECK(problems.empty());
      ++seen["accepted"];
      continue;
    }
    CHECK_FALSE(stages);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].id == ids.at(row[5]));
    ++seen[row[5]];
    for (const auto& change : changes(request, problems[0].help)) {
      INFO(problems[0].help);
      CHECK(works(change));
    }
  }
  CHECK(seen == std::map<std::string, int>{
                    {"accepted", 279}, {"divisible", 214}, {"multi", 185}, {"single", 141}, {"rounding", 1}});
}

TEST_CASE("the suggested layers_per_stage works where NeMo AutoModel's suggestion does not", "[plan]") {
  // NeMo AutoModel suggests 7 layers per stage, which give 5 stages.
  Diagnostics problems;
  CHECK_FALSE(calculate_virtual_stages({30, 2, 4, true, false, StageRounding::kUp}, problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].help ==
        "this schedule runs exactly one stage per rank; use layers_per_stage: 8, or leave layers_per_stage out");
}

TEST_CASE("every suggested value works, and one is suggested whenever one exists", "[plan][property]") {
  std::mt19937 random(11);
  std::size_t advised = 0;
  for (int repeat = 0; repeat < 20000; ++repeat) {
    VirtualStagesRequest request;
    request.layers = static_cast<int>(random() % 40) + 1;
    request.layers_per_stage = static_cast<int>(random() % 45) + 1;
    request.pp_size = static_cast<int>(random() % 12) + 1;
    request.single_stage = random() % 2 == 0;
    request.v_placement = !request.single_stage && random() % 3 == 0;
    request.rounding = static_cast<StageRounding>(random() % 3);
    Diagnostics problems;
    if (calculate_virtual_stages(request, problems)) continue;
    REQUIRE(problems.size() == 1);
    const auto offered = changes(request, problems[0].help);
    INFO(to_text(problems));
    for (const auto& change : offered) CHECK(works(change));
    advised += offered.size();
    if (!offered.empty()) continue;
    for (int value = 1; value <= 60; ++value) {
      auto other = request;
      other.layers_per_stage = value;
      CHECK_FALSE(works(other));
      other = request;
      other.pp_size = value;
      CHECK_FALSE(works(other));
    }
  }
  CHECK(advised > 10000);
}

TEST_CASE("stage numbers below one are refused, each under its key", "[plan]") {
  Diagnostics problems;
  CHECK_FALSE(calculate_virtual_stages({0, 0, -3, true, false, StageRounding::kRefuse}, problems));
  REQUIRE(problems.size() == 3);
  CHECK(problems[1].key == "distributed.pp_size");
  CHECK(problems[2].key == "distributed.pipeline.layers_per_stage");
  problems.clear();
  CHECK_FALSE(calculate_virtual_stages({0, 1, 1, true, false, StageRounding::kRefuse}, problems));
  CHECK(problems.size() == 1);  // one is a number of ranks and of layers
  problems.clear();
  CHECK(calculate_virtual_stages({1, 1, 1, true, false, StageRounding::kRefuse}, problems) == VirtualStages{1, 1});
  CHECK(calculate_virtual_stages({8, std::int64_t{1} << 60, 1, true, false, StageRounding::kRefuse}, problems) ==
        VirtualStages{1, 1});
}

TEST_CASE("a V schedule needs exactly two stages per rank", "[plan]") {
  Diagnostics problems;
  CHECK_FALSE(calculate_virtual_stages({8, 1, 2, false, true, StageRounding::kRefuse}, problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].id == "schedule-v-stages");
  CHECK(problems[0].help ==
        "this schedule runs exactly two stages per rank; use layers_per_stage: 2, or leave layers_per_stage out");
}

TEST_CASE("stages are placed on ranks as in NeMo AutoModel", "[plan][golden]") {
  int accepted = 0;
  int refused = 0;
  for (const auto& row : golden::load("plan/stage_ids.json")) {
    CAPTURE(row.dump());
    const std::string name = row[3];
    const int rank = row[0], ranks = row[1], stages = row[2];
    if (name != "loop" && name != "v") {
      CHECK(row[4].is_null());  // NeMo AutoModel returns nothing for a style it does not know
      continue;
    }
    const auto style = name == "v" ? schedule::PlacementStyle::kV : schedule::PlacementStyle::kLoop;
    const bool uneven = stages % ranks != 0 || (name == "v" && stages != 2 * ranks);
    if (!row[4].is_array()) {
      ++refused;
      CHECK((uneven || !check_split_schedule(stages, ranks, false, style).empty()));
      continue;
    }
    if (stages == 0) continue;  // no stages on any rank: nothing to plan
    ++accepted;
    REQUIRE_FALSE(uneven);
    std::vector<int> ours;
    const auto placement = schedule::make_placement(style, ranks, stages);
    for (const auto stage : placement.stages_of(rank)) ours.push_back(static_cast<int>(stage.at()));
    CHECK(ours == row[4].get<std::vector<int>>());
  }
  CHECK(accepted > 150);
  CHECK(refused > 250);
}

}  // namespace automodel::plan
