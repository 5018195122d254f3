// Every communicator of a run, by purpose. The runtime creates its process groups only from this table.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "mesh/rank_grid.h"

namespace automodel::plan {

struct TrainingPlan;

enum class Channel {
  kPipeline,        ///< messages between stages
  kTensor,          ///< tensor parallelism
  kSharedHeads,     ///< tensor-parallel ranks that hold the same key-value heads
  kContext,         ///< ranks with different tokens of the same sequences
  kContextHeads,    ///< adjacent context-parallel ranks that exchange heads
  kContextKeys,     ///< ranks at the same position in each kContextHeads group; exchange keys and values
  kDenseShard,      ///< ranks that share one copy of the dense parameters, or sum whole gradients
  kDenseReplicate,  ///< ranks that hold the same shard (HSDP)
  kExperts,         ///< ranks that share a layer's experts
  kExpertShard,     ///< ranks that hold the same experts
  kTokens,          ///< ranks with different tokens of the same microbatch (router statistics)
  kTied,            ///< ranks of the embedding and of the head that shares its weight
};

struct ChannelRow {
  Channel channel;
  std::string_view name;  ///< in messages, traces and JSON
  std::string_view doc;
};
std::span<const ChannelRow> channels();
std::string_view name_of(Channel channel);

/// The ranks in `rank`'s group of the channel, itself included, in communicator order. Empty if the plan does not use
/// the channel on this rank. A group of one rank is valid and does nothing.
std::vector<mesh::Rank> members_of(const TrainingPlan& plan, Channel channel, mesh::Rank rank);
/// Kinds of traffic on a channel. Each kind needs its own resources on a GPU (NCCL communicators and streams).
struct ChannelTraffic {
  bool collectives = true;
  bool all_to_all = false;  ///< the collectives include all-to-all
  bool messages = false;    ///< point-to-point
  bool ring = false;        ///< only between neighbouring positions, of which the last and the first are two
};
ChannelTraffic traffic_of(const TrainingPlan& plan, Channel channel);
/// All groups of the channel with more than one rank, ordered by first rank.
std::vector<std::vector<mesh::Rank>> groups_of(const TrainingPlan& plan, Channel channel);

}  // namespace automodel::plan
