#include "mesh/device_mesh.h"

#include <map>

#include <catch2/catch.hpp>

#include "golden_file.h"
#include "golden_ranks.h"
#include "nemo_restrictions.h"

namespace automodel::mesh {
namespace {

std::optional<std::int64_t> optional_size(const nlohmann::json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

/// The group of `rank` along the axes called `name` as a vector.
std::vector<Rank> group(const DeviceMesh& mesh, Rank rank, const std::string& name) {
  static const std::map<std::string, AxisSet> kByName = {{"pp", Axis::kPp},
                                                         {"dp_replicate", Axis::kDpReplicate},
                                                         {"dp_shard", Axis::kDpShard},
                                                         {"cp", Axis::kCp},
                                                         {"tp", Axis::kTp},
                                                         {"ep_shard", Axis::kEpShard},
                                                         {"ep", Axis::kEp},
                                                         {"dp", kDp},
                                                         {"dp_shard_cp", kDpShardCp},
                                                         {"dp_cp", kDpCp},
                                                         {"ep+ep_shard", AxisSet(Axis::kEp) | Axis::kEpShard}};
  return mesh.group_of(rank, kByName.at(name));
}

void check_rank(const DeviceMesh& mesh, Rank rank, const nlohmann::json& expected) {
  for (const auto& [name, members] : expected.items()) {
    CAPTURE(name);
    if (name == "fsdp") {
      const auto axes = mesh.data_parallel_axes();
      std::vector<std::string> dims;
      std::vector<int> shape;
      for (const AxisSet axis : {axes.replicate, axes.shard}) {
        if (axis.empty()) continue;
        dims.push_back(name_of(axis));
        shape.push_back(mesh.size(axis));
      }
      CHECK(dims == members["dims"].get<std::vector<std::string>>());
      CHECK(shape == members["shape"].get<std::vector<int>>());
      for (const auto& [axis, ranks] : members["groups"].items())
        CHECK(group(mesh, rank, axis) == golden::sequence(ranks));
    } else if (name == "moe") {
      CHECK(members["shape"] == nlohmann::json({mesh.size(Axis::kEpShard), mesh.size(Axis::kEp)}));
      CHECK(group(mesh, rank, "ep+ep_shard") == golden::sequence(members["ranks"]));
      for (const auto& [axis, ranks] : members["groups"].items())
        CHECK(group(mesh, rank, axis) == golden::sequence(ranks));
    } else {
      CHECK(group(mesh, rank, name) == golden::sequence(members));
    }
  }
}

}  // namespace

TEST_CASE("meshes match those of NeMo AutoModel", "[mesh][golden]") {
  std::size_t accepted = 0;
  std::size_t refused = 0;
  for (const auto& row : golden::load("mesh/nemo_mesh.json")) {
    const auto& in = row["in"];
    CAPTURE(in.dump());
    const MeshRequest request{parse_strategy(in[0].get<std::string>()).value(),
                              optional_size(in[2]),
                              optional_size(in[3]),
                              optional_size(in[4]),
                              optional_size(in[5]),
                              optional_size(in[6]),
                              optional_size(in[7])};
    const int world = in[1];
    Diagnostics problems;
    auto sizes = resolve_sizes(request, world, problems);
    if (row.contains("error")) {
      ++refused;
      CHECK((!sizes || nemo_restrictions(request, *sizes) > 0));
      continue;
    }
    ++accepted;
    const int covered = row["world"].is_null() ? world : row["world"].get<int>();
    if (covered != world) {  // NeMo AutoModel leaves the other ranks without a mesh; this program refuses
      REQUIRE_FALSE(sizes);
      CHECK(problems[0].id == "world-size-mismatch");
      Diagnostics none;
      sizes = resolve_sizes(request, covered, none);
    }
    REQUIRE(sizes);
    CHECK(nemo_restrictions(request, *sizes) == 0);
    const DeviceMesh mesh(*sizes, request.strategy);
    if (row["dims"].is_null()) continue;
    std::vector<std::string> dims;
    std::vector<int> shape;
    for (const auto& dim : mesh.dims()) {
      dims.push_back(dim.name);
      shape.push_back(dim.size);
    }
    CHECK(dims == row["dims"].get<std::vector<std::string>>());
    CHECK(shape == row["shape"].get<std::vector<int>>());
    if (request.strategy == Strategy::kFsdp2)
      CHECK(row["sizes"] == nlohmann::json({sizes->pp, sizes->dp(), sizes->dp_replicate, sizes->dp_shard, sizes->cp,
                                            sizes->tp, sizes->ep}));
    for (const auto& [rank, expected] : row["ranks"].items()) {
      CAPTURE(rank);
      if (expected.is_null())
        CHECK(std::stoi(rank) >= covered);
      else
        check_rank(mesh, std::stoi(rank), expected);
    }
  }
  CHECK(accepted == 114);
  CHECK(refused == 76);
}

TEST_CASE("every strategy accepts every axis", "[mesh]") {
  Diagnostics problems;
  MeshRequest request{Strategy::kDdp, {}, {}, 2, 2, 1, 2};
  auto sizes = resolve_sizes(request, 16, problems);
  REQUIRE(sizes == MeshSizes{2, 4, 1, 1, 2, 2});
  CHECK(nemo_restrictions(request, *sizes) == 3);
  CHECK(DeviceMesh(*sizes, Strategy::kDdp).dims().size() == 3);

  request = {Strategy::kFsdp2, 8, 8, {}, 2, {}, {}};
  CHECK(resolve_sizes(request, 16, problems) == MeshSizes{2, 8, 1, 1, 1, 1});

  request = {Strategy::kMegatronFsdp, {}, 2, 2, 2, 2, 4};
  sizes = resolve_sizes(request, 64, problems);
  REQUIRE(sizes == MeshSizes{2, 2, 4, 2, 2, 4});
  const DeviceMesh mesh(*sizes, Strategy::kMegatronFsdp);
  CHECK(mesh.dims().size() == 5);
  CHECK(mesh.data_parallel_axes().shard == kDpShardCp);
  CHECK(problems.empty());
}

TEST_CASE("expert-parallel groups stay inside a pipeline stage", "[mesh]") {
  const DeviceMesh mesh({2, 1, 4, 1, 2, 4}, Strategy::kFsdp2);
  CHECK(mesh.groups(Axis::kEp)[2][0] == 8);
  CHECK(mesh.groups({Axis::kPp, Axis::kEp}).group_size() == 8);
  CHECK(mesh.group_of(13, Axis::kEpShard) == std::vector<Rank>{9, 13});
}

}  // namespace automodel::mesh
