#include "plan/communicators.h"

#include <array>
#include <cstdlib>

#include "plan/training_plan.h"

namespace automodel::plan {
namespace {

using mesh::Axis;
using mesh::AxisSet;
using mesh::Rank;

constexpr std::array kChannels = {
    ChannelRow{Channel::kPipeline, "pp", "Messages between stages."},
    ChannelRow{Channel::kTensor, "tp", "Activations and gradients of split matmuls."},
    ChannelRow{Channel::kSharedHeads, "shared heads", "Tensor-parallel ranks that hold the same key-value heads."},
    ChannelRow{Channel::kContext, "cp", "Ranks with different tokens of the same sequences."},
    ChannelRow{Channel::kContextHeads, "cp_heads", "Those of them that exchange heads."},
    ChannelRow{Channel::kContextKeys, "cp_keys", "Those of them that exchange keys and values."},
    ChannelRow{Channel::kDenseShard, "dp_shard_cp", "Ranks that shard a dense parameter, or all-reduce its gradient."},
    ChannelRow{Channel::kDenseReplicate, "dp_replicate", "Ranks that hold the same shard."},
    ChannelRow{Channel::kExperts, "ep", "Ranks over which a layer's experts are distributed."},
    ChannelRow{Channel::kExpertShard, "ep_shard", "Ranks that hold the same experts."},
    ChannelRow{Channel::kTokens, "cp_tp", "Ranks with different tokens of a microbatch (router statistics)."},
    ChannelRow{Channel::kTied, "tied embeddings",
               "First and last stage, where the head shares the embedding's weight."},
};

/// `all` is divided into runs of `run` consecutive ranks; `here` is the rank's own position. same_run() returns its
/// run, same_place() the members at the same offset in every run.
std::vector<Rank> same_run(const std::vector<Rank>& all, int here, int run) {
  const int first = here / run * run;
  return {all.begin() + first, all.begin() + first + run};
}
std::vector<Rank> same_place(const std::vector<Rank>& all, int here, int run) {
  std::vector<Rank> out;
  for (int i = here % run; i < static_cast<int>(all.size()); i += run) out.push_back(all[static_cast<std::size_t>(i)]);
  return out;
}

bool whole_world_sums(const TrainingPlan& plan) {
  return plan.mesh.strategy() == mesh::Strategy::kDdp;
}

}  // namespace

std::span<const ChannelRow> channels() {
  return kChannels;
}

std::string_view name_of(Channel channel) {
  for (const auto& row : kChannels)
    if (row.channel == channel) return row.name;
  return {};
}

std::vector<Rank> members_of(const TrainingPlan& plan, Channel channel, Rank rank) {
  const auto& mesh = plan.mesh;
  const auto group = [&](AxisSet axes) { return mesh.group_of(rank, axes); };
  const bool experts = plan.model && plan.model->spec.moe;
  switch (channel) {
    case Channel::kPipeline: return group(Axis::kPp);
    case Channel::kTensor: return group(Axis::kTp);
    case Channel::kContext: return group(Axis::kCp);
    case Channel::kSharedHeads: {
      const int tp = mesh.size(Axis::kTp), heads = plan.model ? plan.model->spec.kv_heads : tp;
      if (heads < 1 || heads >= tp || tp % heads != 0) return {};
      return same_run(group(Axis::kTp), mesh.position(rank, Axis::kTp), tp / heads);
    }
    case Channel::kContextHeads:
    case Channel::kContextKeys: {
      if (mesh.size(Axis::kCp) == 1) return {};
      const auto all = group(Axis::kCp);
      const int here = mesh.position(rank, Axis::kCp), run = plan.context.heads;
      return channel == Channel::kContextHeads ? same_run(all, here, run) : same_place(all, here, run);
    }
    case Channel::kDenseShard: return group(whole_world_sums(plan) ? mesh::kDpCp : mesh.data_parallel_axes().shard);
    case Channel::kDenseReplicate: {
      const auto axes = mesh.data_parallel_axes().replicate;
      return whole_world_sums(plan) || axes.empty() || mesh.size(axes) == 1 ? std::vector<Rank>() : group(axes);
    }
    case Channel::kExperts:
    case Channel::kExpertShard: {
      // The ranks of a stage are arranged as (ep_shard, ep, expert tensor), the last fastest.
      if (!experts) return {};
      const auto all = group(mesh::kStageRanks);
      const int here = mesh.position(rank, mesh::kStageRanks), run = mesh.size(Axis::kEp) * plan.expert_tensor;
      return channel == Channel::kExperts ? same_run(all, here, run) : same_place(all, here, run);
    }
    case Channel::kTokens: return experts ? group({Axis::kCp, Axis::kTp}) : std::vector<Rank>();
    case Channel::kTied: {
      if (!plan.model || !plan.model->spec.tied_embeddings || !plan.pipeline || plan.pipeline->stages.size() < 2)
        return {};
      const auto& stages = plan.pipeline->stages;
      const auto all = group(Axis::kPp);
      const Rank first = all[static_cast<std::size_t>(stages.front().pp_rank)];
      const Rank last = all[static_cast<std::size_t>(stages.back().pp_rank)];
      if (first == last || (rank != first && rank != last)) return {};
      return {first, last};
    }
  }
  return {};
}

namespace {

/// Whether consecutive stages are on neighbouring ranks: true unless a schedule from a file places them otherwise.
bool stages_form_ring(const schedule::Placement& placement) {
  const auto& ranks = placement.rank_of_stage();
  for (std::size_t i = 0; i + 1 < ranks.size(); ++i) {
    const int apart = std::abs(ranks[i + 1] - ranks[i]);
    if (apart > 1 && apart < placement.ranks() - 1) return false;
  }
  return true;
}

}  // namespace

ChannelTraffic traffic_of(const TrainingPlan& plan, Channel channel) {
  // A matrix optimizer needs whole matrices, so shards are sent to the rank that updates the matrix.
  const bool matrices = plan.optimizer.takes_matrices();
  switch (channel) {
    case Channel::kPipeline:
      return {.collectives = false,
              .messages = true,
              .ring = plan.pipeline && stages_form_ring(plan.pipeline->schedule.placement)};
    case Channel::kContextKeys:
      return {.collectives = plan.context.gather, .messages = !plan.context.gather, .ring = !plan.context.gather};
    case Channel::kTensor: return {.all_to_all = matrices, .messages = plan.tensor.overlap.by_shares()};
    case Channel::kContext:
      return {.all_to_all = plan.model && (recurrent_exchanges(plan.model->spec).states || plan.model->spec.index)};
    case Channel::kContextHeads:
    case Channel::kExperts: return {.all_to_all = true};
    case Channel::kDenseShard:
    case Channel::kExpertShard: return {.all_to_all = matrices};
    case Channel::kSharedHeads:
    case Channel::kDenseReplicate:
    case Channel::kTokens:
    case Channel::kTied: return {};
  }
  return {};
}

std::vector<std::vector<Rank>> groups_of(const TrainingPlan& plan, Channel channel) {
  std::vector<std::vector<Rank>> out;
  std::vector<bool> seen(static_cast<std::size_t>(plan.mesh.world_size()));
  for (Rank rank = 0; rank < plan.mesh.world_size(); ++rank) {
    if (seen[static_cast<std::size_t>(rank)]) continue;
    auto members = members_of(plan, channel, rank);
    for (const Rank member : members) seen[static_cast<std::size_t>(member)] = true;
    if (members.size() > 1) out.push_back(std::move(members));
  }
  return out;
}

}  // namespace automodel::plan
