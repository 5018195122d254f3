#include "mesh/device_mesh.h"

#include "base/error.h"

namespace automodel::mesh {
namespace {

constexpr AxisSet kExpertAxes = {Axis::kEp, Axis::kEpShard};

}  // namespace

DeviceMesh::DeviceMesh(const MeshSizes& sizes, Strategy strategy)
    : sizes_(sizes),
      strategy_(strategy),
      dense_({{Axis::kPp, sizes.pp},
              {Axis::kDpReplicate, sizes.dp_replicate},
              {Axis::kDpShard, sizes.dp_shard},
              {Axis::kCp, sizes.cp},
              {Axis::kTp, sizes.tp}}),
      experts_({{Axis::kPp, sizes.pp}, {Axis::kEpShard, sizes.per_stage() / sizes.ep}, {Axis::kEp, sizes.ep}}) {
  AUTOMODEL_CHECK(experts_.world_size() == dense_.world_size(), "ep must divide the ranks of a stage");
}

std::vector<MeshDim> DeviceMesh::dims() const {
  std::vector<MeshDim> out;
  const auto add = [&](AxisSet axes) { out.push_back({name_of(axes), axes, dense_.size(axes)}); };
  const auto add_large = [&](AxisSet axes) {
    if (dense_.size(axes) > 1) add(axes);
  };
  if (strategy_ == Strategy::kFsdp2) {
    for (const auto& dim : dense_.dims()) add(dim.axis);
    return out;
  }
  add_large(Axis::kPp);
  if (strategy_ == Strategy::kDdp) {
    add(kDp);
    add_large(Axis::kCp);
    add_large(Axis::kTp);
    return out;
  }
  if (sizes_.dp_replicate > 1) {
    add(Axis::kDpReplicate);
    add(Axis::kDpShard);
  } else {
    add(kDp);
  }
  add(Axis::kCp);
  add(Axis::kTp);
  return out;
}

DataParallelAxes DeviceMesh::data_parallel_axes() const {
  return {sizes_.dp_replicate > 1 ? AxisSet(Axis::kDpReplicate) : AxisSet(),
          sizes_.cp > 1 ? kDpShardCp : AxisSet(Axis::kDpShard)};
}

const RankGrid& DeviceMesh::grid_of(AxisSet axes) const {
  const AxisSet dense_only = axes - kExpertAxes;
  if (dense_only == axes) return dense_;
  AUTOMODEL_CHECK((dense_only - Axis::kPp).empty(), "expert axes cannot be combined with those of dense layers");
  return experts_;
}

}  // namespace automodel::mesh
