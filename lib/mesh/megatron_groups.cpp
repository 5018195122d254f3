#include "mesh/megatron_groups.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "mesh/capped_product.h"

namespace automodel::mesh {
namespace {

constexpr Axis kDpAxis = Axis::kDpShard;

struct Kind {
  std::string_view name;
  AxisSet axes;
};
constexpr Kind kBeforeDp[] = {{"GTP_WEIGHT_REMAT_GROUP", Axis::kWeightRemat},
                              {"DATA_PARALLEL_GROUP_WITH_CP", {kDpAxis, Axis::kCp}}};
constexpr Kind kDpOnly = {"DATA_PARALLEL_GROUP", kDpAxis};
constexpr Kind kRemat[] = {{"DATA_PARALLEL_GROUP_WITH_GTP_REMAT", {kDpAxis, Axis::kWeightRemat}},
                           {"DATA_PARALLEL_GROUP_WITH_CP_WITH_GTP_REMAT", {kDpAxis, Axis::kCp, Axis::kWeightRemat}}};
constexpr Kind kModel[] = {{"MODEL_PARALLEL_GROUP", {Axis::kTp, Axis::kWeightRemat, Axis::kPp}},
                           {"TENSOR_MODEL_PARALLEL_GROUP", Axis::kTp},
                           {"PIPELINE_MODEL_PARALLEL_GROUP", Axis::kPp}};
constexpr Kind kCombined[] = {
    {"TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", {Axis::kTp, Axis::kWeightRemat, kDpAxis, Axis::kCp}},
    {"TENSOR_AND_DATA_PARALLEL_GROUP", {Axis::kTp, Axis::kWeightRemat, kDpAxis}},
    {"TENSOR_AND_CONTEXT_PARALLEL_GROUP", {Axis::kTp, Axis::kCp}}};
constexpr AxisSet kEveryAxis = {Axis::kTp, Axis::kPp, kDpAxis, Axis::kEp, Axis::kCp, Axis::kWeightRemat};
constexpr AxisSet kExpertModel = {Axis::kTp, Axis::kEp, Axis::kPp};
constexpr Kind kExpert[] = {
    {"EXPERT_GTP_WEIGHT_REMAT_GROUP", Axis::kWeightRemat},
    {"EXPERT_MODEL_PARALLEL_GROUP", Axis::kEp},
    {"EXPERT_TENSOR_PARALLEL_GROUP", Axis::kTp},
    {"EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", {Axis::kTp, Axis::kEp}},
    {"EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", kExpertModel},
    {"EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP_WITH_EGTP", kExpertModel | Axis::kWeightRemat},
    {"EXPERT_DATA_PARALLEL_GROUP", kDpAxis},
};

/// `order` with "gtp_remat" put after `axis`, or at the end where the order does not name that axis.
std::string with_remat(const std::string& order, std::string_view axis) {
  std::string lower = order;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (("-" + lower + "-").find("-gtp_remat-") != std::string::npos) return lower;
  const auto at = ("-" + lower + "-").find(fmt::format("-{}-", axis));
  if (at == std::string::npos) return lower + "-gtp_remat";
  return lower.insert(at + axis.size(), "-gtp_remat");
}

bool ends_in_pp(const std::string& order) {
  return order.size() >= 2 && (order.ends_with("pp") || order.ends_with("PP"));
}

/// world / product of `factors`, or 0 and a problem.
int quotient(int world, std::initializer_list<std::int64_t> factors, std::string_view what, Diagnostics& problems) {
  const std::int64_t product = capped_product(factors);
  if (world % product == 0) return static_cast<int>(world / product);
  const std::int64_t below = world / product * product;
  problems.push_back({"indivisible", fmt::format("{} ranks cannot be divided by {} = {}", world, what, product),
                      fmt::format("the product must divide the number of ranks; use {}{} ranks",
                                  below > 0 ? fmt::format("{} ranks or ", below) : "",
                                  capped_product({product, world / product + 1}))});
  return 0;
}

bool sizes_positive(const MegatronSizes& s, Diagnostics& problems) {
  const int smallest = std::min({s.world_size, s.tensor, s.pipeline, s.context, s.expert, s.expert_tensor.value_or(1),
                                 s.weight_remat, s.expert_weight_remat, s.optimizer_instances});
  if (smallest >= 1) return true;
  problems.push_back({"bad-value", fmt::format("a parallel size is {}", smallest), "sizes are at least 1"});
  return false;
}

/// Appends groups made from several lists of equal group size.
class Joined {
 public:
  void add(std::span<const Rank> ranks) { ranks_.insert(ranks_.end(), ranks.begin(), ranks.end()); }
  GroupList list(std::size_t group_size) { return {std::move(ranks_), group_size}; }

 private:
  std::vector<Rank> ranks_ = {};
};

class Builder {
 public:
  Builder(const MegatronSizes& sizes, MegatronGrids grids) : sizes_(sizes), grids_(std::move(grids)) {}

  std::vector<NamedGroups> build() {
    for (const auto& kind : kBeforeDp) add(kind, grids_.dense);
    optimizer_slices();
    hybrid();
    add(kDpOnly, grids_.dense);
    if (sizes_.weight_remat > 1)
      for (const auto& kind : kRemat) add(kind, grids_.dense);
    add({"CONTEXT_PARALLEL_GROUP", Axis::kCp}, grids_.dense);
    context_levels();
    for (const auto& kind : kModel) add(kind, grids_.dense);
    embeddings();
    for (const auto& kind : kCombined) add(kind, grids_.dense);
    for (const auto& kind : kExpert) add(kind, grids_.experts);
    expert_instances();
    return std::move(out_);
  }

 private:
  void add(const Kind& kind, const RankGrid& grid) { out_.push_back({std::string(kind.name), grid.groups(kind.axes)}); }

  /// Each optimizer instance shards over a contiguous slice of dp-cp.
  void optimizer_slices() {
    if (sizes_.optimizer_instances == 1) return;
    const auto whole = grids_.dense.groups({kDpAxis, Axis::kCp});
    const auto slice = whole.group_size() / static_cast<std::size_t>(sizes_.optimizer_instances);
    out_.push_back({"INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", {whole.ranks(), slice}});
  }

  void hybrid() {
    if (!sizes_.hybrid_context) return;
    const auto whole = grids_.dense.groups({kDpAxis, Axis::kCp});
    for (std::size_t size = 2; size < whole.group_size(); size *= 2)
      out_.push_back({fmt::format("HYBRID_DP_CP_GROUP_{}", size), {whole.ranks(), size}});
  }

  void context_levels() {
    const auto whole = grids_.dense.groups(Axis::kCp);
    for (std::size_t level = 0; level < sizes_.context_levels.size(); ++level) {
      Joined joined;
      for (std::size_t i = 0; i < whole.size(); ++i)
        joined.add(hierarchical_groups(whole[i], sizes_.context_levels, level).ranks());
      out_.push_back({fmt::format("HIERARCHICAL_CONTEXT_PARALLEL_GROUP_{}", level),
                      joined.list(static_cast<std::size_t>(sizes_.context_levels[level]))});
    }
  }

  /// First and last stage share the word embedding, the first one alone holds position embeddings.
  void embeddings() {
    const auto pipelines = grids_.dense.groups(Axis::kPp);
    Joined ends;
    Joined firsts;
    for (std::size_t i = 0; i < pipelines.size(); ++i) {
      const auto pipeline = pipelines[i];
      ends.add(pipeline.first(1));
      if (pipeline.size() > 1) ends.add(pipeline.last(1));
      firsts.add(pipeline.first(1));
    }
    out_.push_back({"EMBEDDING_GROUP", ends.list(pipelines.group_size() > 1 ? 2 : 1)});
    out_.push_back({"POSITION_EMBEDDING_GROUP", firsts.list(1)});
  }

  /// All ranks that one distributed-optimizer instance spans: the model-parallel groups of its share of expert
  /// replicas.
  void expert_instances() {
    const auto replicas = grids_.experts.groups(kDpAxis);
    const std::size_t share = replicas.group_size() / static_cast<std::size_t>(sizes_.optimizer_instances);
    if (sizes_.optimizer_instances > 1) {
      const std::vector<int> levels = {static_cast<int>(share), sizes_.optimizer_instances};
      Joined intra;
      Joined inter;
      for (std::size_t i = 0; i < replicas.size(); ++i) {
        intra.add(hierarchical_groups(replicas[i], levels, 0).ranks());
        inter.add(hierarchical_groups(replicas[i], levels, 1).ranks());
      }
      out_.push_back({"INTRA_PARTIAL_EXPERT_DATA_PARALLEL_GROUP", intra.list(share)});
      out_.push_back({"INTER_PARTIAL_EXPERT_DATA_PARALLEL_GROUP",
                      inter.list(static_cast<std::size_t>(sizes_.optimizer_instances))});
    }
    // With gtp_remat Megatron takes all ranks in order; otherwise it strings the model-parallel groups together.
    const bool remat = sizes_.weight_remat > 1 || sizes_.expert_weight_remat > 1;
    const auto models = grids_.experts.groups(remat ? kEveryAxis : kExpertModel);
    out_.push_back({"INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP",
                    {models.ranks(), remat ? models.group_size() : models.group_size() * share}});
  }

  const MegatronSizes& sizes_;
  MegatronGrids grids_;
  std::vector<NamedGroups> out_ = {};
};

void check_extras(const MegatronSizes& sizes, const MegatronGrids& grids, Diagnostics& problems) {
  const int dp_cp = grids.dense.size({kDpAxis, Axis::kCp});
  const int expert_dp = grids.experts.size(kDpAxis);
  const auto refuse = [&](std::string_view id, std::string message, std::string_view help) {
    problems.push_back({std::string(id), std::move(message), std::string(help)});
  };
  if (!sizes.context_levels.empty()) {
    const auto product =
        std::accumulate(sizes.context_levels.begin(), sizes.context_levels.end(), std::int64_t{1}, std::multiplies<>());
    const bool positive =
        std::all_of(sizes.context_levels.begin(), sizes.context_levels.end(), [](int n) { return n > 0; });
    if (!positive || product != sizes.context)
      refuse("bad-value", fmt::format("hierarchical context-parallel sizes multiply to {}", product),
             fmt::format("they must multiply to the context-parallel size {}", sizes.context));
  }
  if (sizes.hybrid_context && dp_cp % 2 != 0)
    refuse("indivisible", fmt::format("hybrid context parallelism over {} data- and context-parallel ranks", dp_cp),
           "their number must be even");
  if (sizes.optimizer_instances == 1) return;
  if (dp_cp % sizes.optimizer_instances != 0 || expert_dp % sizes.optimizer_instances != 0)
    refuse("indivisible",
           fmt::format("{} optimizer instances over {} data-parallel ranks ({} for experts)", sizes.optimizer_instances,
                       dp_cp, expert_dp),
           fmt::format("the number of instances must divide {}", std::gcd(dp_cp, expert_dp)));
  if (sizes.weight_remat > 1 || sizes.expert_weight_remat > 1)
    refuse("bad-value", "several optimizer instances together with gtp_remat", "use one of them");
}

}  // namespace

std::optional<MegatronGrids> megatron_grids(const MegatronSizes& s, Diagnostics& problems) {
  const std::size_t before = problems.size();
  if (!sizes_positive(s, problems)) return std::nullopt;
  const int expert_tensor = s.expert_tensor.value_or(s.tensor);
  const int dp = quotient(s.world_size, {s.tensor, s.pipeline, s.context, s.weight_remat},
                          "tensor x pipeline x context size", problems);
  const int expert_dp = quotient(s.world_size, {expert_tensor, s.expert, s.pipeline, s.expert_weight_remat},
                                 "expert tensor x expert x pipeline size", problems);
  if (s.virtual_pipeline && s.pipeline == 1)
    problems.push_back(
        {"bad-value", "virtual pipeline stages without pipeline parallelism", "the pipeline size must be at least 2"});
  if (problems.size() > before) return std::nullopt;

  const auto dense_order = s.weight_remat > 1 ? with_remat(s.order, "tp") : s.order;
  const auto expert_order = s.expert_weight_remat > 1 ? with_remat(s.order, "ep") : s.order;
  auto dense = rank_order({s.tensor, s.pipeline, dp, 1, s.context, s.weight_remat}, dense_order, 0, problems);
  Diagnostics of_experts;
  auto experts = rank_order({expert_tensor, s.pipeline, expert_dp, s.expert, 1, s.expert_weight_remat}, expert_order, 0,
                            of_experts);
  // What is wrong with the order itself is wrong in both grids; say it once.
  for (auto& problem : of_experts)
    if (std::none_of(problems.begin() + static_cast<std::ptrdiff_t>(before), problems.end(),
                     [&](const Diagnostic& said) { return said.message == problem.message; }))
      problems.push_back(std::move(problem));
  if (!dense || !experts) return std::nullopt;
  if (s.pipeline > 1 && dp != expert_dp && !ends_in_pp(s.order)) {
    problems.push_back({"bad-value",
                        fmt::format("rank order '{}' with {} data-parallel ranks of dense and {} of expert layers",
                                    s.order, dp, expert_dp),
                        fmt::format("unless the two agree, pp must be the last axis: order: {}", kDefaultRankOrder),
                        {},
                        "order"});
    return std::nullopt;
  }
  if (!(dense->groups(Axis::kPp) == experts->groups(Axis::kPp))) {
    problems.push_back({"bad-value",
                        fmt::format("rank order '{}' gives dense and expert layers different pipelines", s.order),
                        fmt::format("use order: {}", kDefaultRankOrder),
                        {},
                        "order"});
    return std::nullopt;
  }
  return MegatronGrids{std::move(*dense), std::move(*experts)};
}

std::optional<std::vector<NamedGroups>> megatron_groups(const MegatronSizes& sizes, Diagnostics& problems) {
  auto grids = megatron_grids(sizes, problems);
  if (!grids) return std::nullopt;
  const std::size_t before = problems.size();
  check_extras(sizes, *grids, problems);
  if (problems.size() > before) return std::nullopt;
  return Builder(sizes, std::move(*grids)).build();
}

GroupList hierarchical_groups(std::span<const Rank> ranks, std::span<const int> levels, std::size_t level) {
  const auto product = [](std::span<const int> sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), std::size_t{1},
                           [](std::size_t a, int b) { return a * static_cast<std::size_t>(b); });
  };
  AUTOMODEL_CHECK(level < levels.size() && product(levels) == ranks.size(), "levels must multiply to the group size");
  const auto size = static_cast<std::size_t>(levels[level]);
  const std::size_t inner = product(levels.first(level));
  std::vector<Rank> out;
  out.reserve(ranks.size());
  for (std::size_t outer = 0; outer < ranks.size(); outer += size * inner)
    for (std::size_t i = 0; i < inner; ++i)
      for (std::size_t k = 0; k < size; ++k) out.push_back(ranks[outer + k * inner + i]);
  return {std::move(out), size};
}

}  // namespace automodel::mesh
