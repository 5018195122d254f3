#include "estimate/fewer_ranks.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/environment.h"
#include "estimate/search.h"

namespace automodel::estimate {
namespace {

constexpr int kSearches = 4;  // rank counts to try a search for, starting with the largest

std::optional<EstimatedPlan> plan_of(const config::LoadedRecipe& loaded, const std::vector<config::Override>& overrides,
                                     PlanRequest request, int ranks) {
  const auto changed = config::read_again(loaded, overrides, config::process_environment());
  if (!changed.problems.empty()) return std::nullopt;
  request.world_size = ranks;
  auto out = make_plan(changed, request).plan;
  if (out && out->estimate && out->estimate->memory.fit == Fit::kDoesNotFit) return std::nullopt;
  return out;
}

}  // namespace

std::optional<SmallerPlan> plan_for_fewer(const config::LoadedRecipe& loaded, const EstimatedPlan& whole,
                                          const SmallerRequest& request) {
  const auto with = [&](const std::vector<config::Override>& overrides, int ranks,
                        bool same_axes) -> std::optional<SmallerPlan> {
    auto plan = plan_of(loaded, overrides, request.plan, ranks);
    if (!plan || plan->batch.global != whole.batch.global) return std::nullopt;
    std::vector<std::string> words;
    for (const auto& each : overrides) words.push_back(fmt::format("{}={}", each.key, each.value));
    return SmallerPlan{std::move(words), std::move(*plan), same_axes};
  };
  const int rest = whole.mesh.world_size() / whole.mesh.size(mesh::kDp);  // ranks per data-parallel coordinate
  for (int dp = request.most / rest; dp >= 1 && dp * rest >= request.least; --dp)
    if (auto out = with({{"distributed.dp_size", std::to_string(dp), "--min-ranks"}}, dp * rest, true)) return out;
  const int last = std::max(request.least, request.most - kSearches + 1);
  for (int ranks = request.most; ranks >= last; --ranks)
    for (const auto& candidate : search_plans(loaded, {.plan = request.plan, .world_size = ranks}).best)
      if (candidate.fit != Fit::kDoesNotFit)
        if (auto out = with(candidate.overrides, ranks, false)) return out;
  return std::nullopt;
}

}  // namespace automodel::estimate
