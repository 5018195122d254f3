// Meshes that this program supports and NeMo AutoModel refuses: its recorded answers are errors and ours are not.
#pragma once

#include "mesh/mesh_sizes.h"

namespace automodel::mesh {

/// How many of the mesh's axes NeMo AutoModel does not support with the strategy.
inline int nemo_restrictions(const MeshRequest& request, const MeshSizes& sizes) {
  const bool fsdp2 = request.strategy == Strategy::kFsdp2;
  const bool ddp = request.strategy == Strategy::kDdp;
  int out = 0;
  for (const bool refused :
       {!fsdp2 && sizes.pp > 1, !fsdp2 && sizes.ep > 1, ddp && sizes.tp > 1, ddp && sizes.cp > 1,
        !fsdp2 && request.dp_replicate_size.value_or(1) > 1, fsdp2 && sizes.dp_replicate > 1 && sizes.dp_shard == 1})
    out += refused ? 1 : 0;
  return out;
}

}  // namespace automodel::mesh
