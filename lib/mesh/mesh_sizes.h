// Sizes of the parallel axes: as requested by a recipe, inferred from the number of ranks, and validated.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/diagnostic.h"
#include "mesh/strategy.h"

namespace automodel::mesh {

/// The sizes as given in a recipe's `distributed:` section. Absent, zero or negative means "inferred" for dp_size and 1
/// for all others, as in NeMo AutoModel.
struct MeshRequest {
  Strategy strategy = Strategy::kFsdp2;
  std::optional<std::int64_t> dp_size = {};
  std::optional<std::int64_t> dp_replicate_size = {};
  std::optional<std::int64_t> tp_size = {};
  std::optional<std::int64_t> pp_size = {};
  std::optional<std::int64_t> cp_size = {};
  std::optional<std::int64_t> ep_size = {};
};

/// Resolved sizes, all at least 1. Expert parallelism reuses the ranks of a stage, so `ep` is not a factor of world().
struct MeshSizes {
  int pp = 1;
  int dp_replicate = 1;
  int dp_shard = 1;
  int cp = 1;
  int tp = 1;
  int ep = 1;
  int dp() const { return dp_replicate * dp_shard; }
  /// Ranks of one pipeline stage.
  int per_stage() const { return dp() * cp * tp; }
  int world() const { return pp * per_stage(); }
  bool operator==(const MeshSizes&) const = default;
};

/// Whether sizes that keep the rules of a mesh also suit what the mesh cannot know, such as the model's heads.
using Suits = std::function<bool(const MeshSizes&)>;

/// Resolves the sizes for `world_size` ranks. Every strategy works with every axis. dp_size defaults to world / (pp cp
/// tp) and is split into dp_replicate groups of dp_shard shards each; `ddp` replicates over all of dp.
/// dp_replicate_size == dp_size (pure replication) is legal. Appends to `problems` and returns nothing if the request
/// cannot be met:
///   world-size-mismatch  pp dp cp tp do not multiply to world_size (NeMo AutoModel lets some ranks idle or crash)
///   indivisible          world_size by pp cp tp, dp_size by dp_replicate_size, the ranks of a stage by ep_size
///   bad-value            world_size below 1, or a dp_replicate_size other than dp_size with `ddp`
/// The help of the first two kinds suggests the nearest "key: value" settings that satisfy every rule and `suits` by
/// changing a single key; if there are none, those that satisfy every rule, or at least this one.
std::optional<MeshSizes> resolve_sizes(const MeshRequest& request, std::int64_t world_size, Diagnostics& problems,
                                       const Suits& suits = {});

}  // namespace automodel::mesh
