#include "mesh/rank_grid.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "mesh/device_mesh.h"

namespace automodel::mesh {
namespace {

std::vector<AxisSet> all_axis_sets() {
  const std::vector<Axis> axes = {Axis::kPp, Axis::kDpReplicate, Axis::kDpShard, Axis::kCp, Axis::kTp};
  std::vector<AxisSet> out;
  for (unsigned bits = 0; bits < 32; ++bits) {
    AxisSet set;
    for (std::size_t i = 0; i < axes.size(); ++i)
      if ((bits >> i & 1U) != 0) set = set | axes[i];
    out.push_back(set);
  }
  return out;
}

}  // namespace

TEST_CASE("every set of axes has a unique name", "[mesh]") {
  CHECK(name_of(kDpShardCp) == "dp_shard_cp");
  CHECK(name_of(kDp | Axis::kPp) == "pp+dp_replicate+dp_shard");
  std::set<std::string> names;
  for (const AxisSet set : all_axis_sets()) names.insert(name_of(set));
  CHECK(names.size() == all_axis_sets().size());
}

TEST_CASE("ranks convert to coordinates and back", "[mesh]") {
  const RankGrid grid({{Axis::kPp, 3}, {Axis::kDpShard, 2}, {Axis::kTp, 4}}, 10);
  CHECK(grid.world_size() == 24);
  for (Rank rank = 10; rank < 34; ++rank) CHECK(grid.rank_at(grid.coordinates(rank)) == rank);
  CHECK(grid.coordinates(10 + 8 + 4 + 3)[index_of(Axis::kPp)] == 1);
  CHECK(grid.position(10 + 8 + 4 + 3, {Axis::kPp, Axis::kTp}) == 7);
  CHECK(grid.position(10 + 8, Axis::kCp) == 0);
  CHECK_THROWS_AS(grid.coordinates(34), InternalError);
}

TEST_CASE("the groups along any axes partition the ranks, are sorted, and match the group of each rank", "[mesh]") {
  for (const MeshSizes sizes :
       {MeshSizes{2, 2, 3, 2, 2, 1}, MeshSizes{1, 1, 1, 1, 1, 1}, MeshSizes{4, 1, 2, 1, 3, 1}}) {
    const DeviceMesh mesh(sizes);
    for (const AxisSet axes : all_axis_sets()) {
      const auto groups = mesh.groups(axes);
      CAPTURE(name_of(axes));
      REQUIRE(groups.size() * groups.group_size() == static_cast<std::size_t>(mesh.world_size()));
      CHECK(static_cast<int>(groups.group_size()) == mesh.size(axes));
      auto sorted = groups.ranks();
      std::sort(sorted.begin(), sorted.end());
      std::vector<Rank> all(sorted.size());
      std::iota(all.begin(), all.end(), 0);
      CHECK(sorted == all);
      for (std::size_t i = 0; i < groups.size(); ++i) {
        const auto group = groups[i];
        CHECK(std::is_sorted(group.begin(), group.end()));
        if (i > 0) CHECK(groups[i - 1][0] < group[0]);
        for (std::size_t k = 0; k < group.size(); ++k) {
          CHECK(mesh.group_index(group[k], axes) == static_cast<int>(i));
          CHECK(mesh.position(group[k], axes) == static_cast<int>(k));
          CHECK(mesh.group_of(group[k], axes) == std::vector<Rank>(group.begin(), group.end()));
        }
      }
    }
  }
}

}  // namespace automodel::mesh
