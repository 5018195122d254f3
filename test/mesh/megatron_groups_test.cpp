#include "mesh/megatron_groups.h"

#include <catch2/catch.hpp>

#include "golden_file.h"
#include "golden_ranks.h"

namespace automodel::mesh {
namespace {

std::vector<std::vector<int>> nested(const GroupList& list) {
  std::vector<std::vector<int>> out;
  for (std::size_t i = 0; i < list.size(); ++i) out.emplace_back(list[i].begin(), list[i].end());
  return out;
}

MegatronSizes sizes_of(const nlohmann::json& in) {
  MegatronSizes out;
  // local_world_size: the ranks of one program in a job of several; the groups are those of the smaller world.
  out.world_size = in.value("local_world_size", in.value("world_size", 1));
  out.tensor = in.value("tensor_model_parallel_size", 1);
  out.pipeline = in.value("pipeline_model_parallel_size", 1);
  out.context = in.value("context_parallel_size", 1);
  out.expert = in.value("expert_model_parallel_size", 1);
  if (in.contains("expert_tensor_parallel_size")) out.expert_tensor = in["expert_tensor_parallel_size"].get<int>();
  if (in.contains("virtual_pipeline_model_parallel_size"))
    out.virtual_pipeline = in["virtual_pipeline_model_parallel_size"].get<int>();
  out.weight_remat = in.value("gtp_remat_size", 1);
  out.optimizer_instances = in.value("num_distributed_optimizer_instances", 1);
  out.hybrid_context = in.value("hybrid_context_parallel", false);
  out.order = in.value("order", std::string(kDefaultRankOrder));
  return out;
}

void check_order_row(const nlohmann::json& row) {
  const auto& in = row["in"];
  Diagnostics problems;
  const auto grid = rank_order({in["tp"], in["pp"], in["dp"], in["ep"], in["cp"], 1}, in["order"].get<std::string>(),
                               in.value("rank_offset", 0), problems);
  REQUIRE(grid.has_value() == !row.contains("error"));
  if (!grid) return;
  CHECK(order_string(*grid) == row["order"].get<std::string>());
  std::vector<int> sizes;
  for (auto dim = grid->dims().rbegin(); dim != grid->dims().rend(); ++dim) sizes.push_back(dim->size);
  CHECK(sizes == row["sizes"].get<std::vector<int>>());
  for (const auto& [tokens, expected] : row["groups"].items()) {
    CAPTURE(tokens);
    CHECK(nested(grid->groups(parse_order_axes(tokens).value())) == golden::groups(expected));
  }
}

}  // namespace

TEST_CASE("rank groups equal those of Megatron Core", "[mesh][golden]") {
  std::size_t accepted = 0;
  std::size_t refused = 0;
  std::size_t skipped = 0;
  for (const auto& row : golden::load("mesh/megatron_rank_groups.json")) {
    const auto& in = row["in"];
    CAPTURE(in.dump());
    if (in.contains("class")) {
      check_order_row(row);
      ++(row.contains("error") ? refused : accepted);
      continue;
    }
    if (in.contains("sharp_enabled_group")) {  // a network option, no matter of ranks
      ++skipped;
      continue;
    }
    Diagnostics problems;
    const auto groups = megatron_groups(sizes_of(in), problems);
    if (row.contains("error")) {
      if (in["order"] == "TP-CP-EP-DP-PP") {
        // Megatron accepts upper case but then does not see that pp is the last axis. Here case never matters.
        CHECK(groups.has_value());
        ++skipped;
        continue;
      }
      CHECK_FALSE(groups.has_value());
      CHECK_FALSE(problems.empty());
      ++refused;
      continue;
    }
    REQUIRE(groups.has_value());
    ++accepted;
    std::vector<std::string> names;
    for (const auto& kind : *groups) names.push_back(kind.name);
    std::vector<std::string> expected_names;
    for (const auto& kind : row["groups"]) expected_names.push_back(kind[0]);
    REQUIRE(names == expected_names);
    for (std::size_t i = 0; i < names.size(); ++i) {
      CAPTURE(names[i]);
      CHECK(nested((*groups)[i].groups) == golden::groups(row["groups"][i][1]));
    }
  }
  CHECK(accepted == 51);
  CHECK(refused == 11);
  CHECK(skipped == 2);
}

TEST_CASE("hierarchical context parallelism cuts a group into levels", "[mesh]") {
  const std::vector<Rank> ranks = {0, 2, 4, 6, 8, 10, 12, 14};
  const std::vector<int> levels = {2, 4};
  CHECK(nested(hierarchical_groups(ranks, levels, 0)) ==
        std::vector<std::vector<int>>{{0, 2}, {4, 6}, {8, 10}, {12, 14}});
  CHECK(nested(hierarchical_groups(ranks, levels, 1)) == std::vector<std::vector<int>>{{0, 4, 8, 12}, {2, 6, 10, 14}});

  MegatronSizes sizes;
  sizes.world_size = 16;
  sizes.tensor = 2;
  sizes.context = 8;
  sizes.context_levels = levels;
  Diagnostics problems;
  const auto groups = megatron_groups(sizes, problems);
  REQUIRE(groups);
  CHECK((*groups)[4].name == "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_0");
  CHECK(nested((*groups)[5].groups)[0] == std::vector<int>{0, 4, 8, 12});
  sizes.context_levels = {2, 2};
  CHECK_FALSE(megatron_groups(sizes, problems));
  CHECK(problems[0].help == "they must multiply to the context-parallel size 8");
}

TEST_CASE("several optimizer instances slice the data-parallel ranks", "[mesh]") {
  MegatronSizes sizes;
  sizes.world_size = 16;
  sizes.tensor = 2;
  sizes.pipeline = 2;
  sizes.optimizer_instances = 2;
  Diagnostics problems;
  const auto groups = megatron_groups(sizes, problems);
  REQUIRE(groups);
  const auto find = [&](const std::string& name) {
    for (const auto& kind : *groups)
      if (kind.name == name) return nested(kind.groups);
    return std::vector<std::vector<int>>{};
  };
  CHECK(find("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP")[0] == std::vector<int>{0, 2});
  CHECK(find("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP")[1] == std::vector<int>{4, 6});
  CHECK(find("INTRA_PARTIAL_EXPERT_DATA_PARALLEL_GROUP")[0] == std::vector<int>{0, 2});
  CHECK(find("INTER_PARTIAL_EXPERT_DATA_PARALLEL_GROUP")[0] == std::vector<int>{0, 4});
  CHECK(find("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP").size() == 2);
}

TEST_CASE("a rank order that names no or a wrong axis is refused once, with the known axes", "[mesh]") {
  MegatronSizes sizes;
  sizes.world_size = 8;
  sizes.tensor = 2;
  sizes.order = "tq-dp-tp-dp";
  Diagnostics problems;
  CHECK_FALSE(megatron_groups(sizes, problems));
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].message == "unknown axis 'tq' in rank order 'tq-dp-tp-dp'");
  CHECK(problems[0].help == "did you mean 'tp'?");
  CHECK(problems[1].message == "axis 'dp' stands twice in rank order 'tq-dp-tp-dp'");
}

TEST_CASE("a rank order names every axis that is used", "[mesh]") {
  Diagnostics problems;
  CHECK_FALSE(rank_order({2, 2, 2, 1, 1, 1}, "tp-dp", 0, problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].id == "missing-axis");
  CHECK(problems[0].message == "pp has size 2, but rank order 'tp-dp' does not name it");
  problems.clear();
  CHECK(rank_order({2, 1, 2, 1, 1, 1}, "tp-dp", 0, problems));
}

}  // namespace automodel::mesh
