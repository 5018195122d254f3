// Megatron Core's rank layouts: an order string such as "tp-cp-ep-dp-pp" and the grid it means.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "mesh/rank_grid.h"

namespace automodel::mesh {

inline constexpr std::string_view kDefaultRankOrder = "tp-cp-ep-dp-pp";

struct OrderSizes {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  int ep = 1;
  int cp = 1;
  int weight_remat = 1;  ///< "gtp_remat": ranks that share the shards of one weight beyond tp
};

/// The grid that `order` lays out, its left-most axis fastest; letter case is ignored. Axes of size 1 that the order
/// does not name are added as the slowest, in the order of the fields of OrderSizes. "dp" is Axis::kDpShard here.
/// Problems, all with key "order": bad-value (unknown or repeated axis, ep and cp both above 1: one grid holds either),
/// missing-axis (an axis of size above 1 is not named). As Megatron Core's RankGenerator.
std::optional<RankGrid> rank_order(const OrderSizes& sizes, std::string_view order, Rank first_rank,
                                   Diagnostics& problems);

/// The axes of a grid in Megatron's spelling, fastest first: "tp-cp-ep-dp-pp-gtp_remat".
std::string order_string(const RankGrid& grid);

/// Reads a token list such as "tp-dp-cp"; the order of the tokens is irrelevant. Empty for an unknown token.
std::optional<AxisSet> parse_order_axes(std::string_view tokens);

}  // namespace automodel::mesh
