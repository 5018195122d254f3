#include "plan/context_choice.h"

#include <algorithm>

#include <fmt/format.h>

namespace automodel::plan {
namespace {

using config::ContextCommunication;

constexpr const char* kTypeKey = "model_parallel.cp_comm_type";
constexpr const char* kSizesKey = "model_parallel.hierarchical_context_parallel_sizes";

/// `levels` is [ranks that exchange heads, groups that exchange keys]. Megatron Core checks their product only when it
/// creates the groups.
void read_levels(const std::vector<int>& levels, int cp, ContextPlan& plan, Located& report) {
  if (levels.size() != 2 || levels[0] < 1 || levels[1] < 1)
    return void(report.refuse("bad-value", kSizesKey)
                    .says("hierarchical_context_parallel_sizes is not a list of two sizes, each at least 1")
                    .hint("the ranks per all-to-all, and the number of groups that exchange keys and values: [2, 2]"));
  if (levels[0] * levels[1] != cp)
    return void(report.refuse("indivisible", kSizesKey)
                    .says("hierarchical_context_parallel_sizes {} x {} is not cp_size {}", levels[0], levels[1], cp)
                    .hint("the product of both sizes is distributed.cp_size"));
  plan.heads = levels[0];
  plan.keys = levels[1];
}

}  // namespace

std::string undivided_heads(int heads, int groups, const mesh::MeshSizes& sizes) {
  const int own = std::max(1, heads / sizes.tp), keys = std::max(1, groups / sizes.tp);
  if (own % sizes.cp != 0) return fmt::format("{} heads", own);
  return keys % sizes.cp != 0 && sizes.cp % keys != 0 ? fmt::format("{} key groups", keys) : "";
}

RecurrentExchanges recurrent_exchanges(const arch::ModelSpec& spec) {
  RecurrentExchanges out;
  for (int layer = 0; layer < spec.layers; ++layer)
    if (spec.recurs(layer)) (passes_state(spec, layer) ? out.states : out.tokens) = true;
  return out;
}

std::string undivided_state(const arch::ModelSpec& spec, const mesh::MeshSizes& sizes) {
  if (!spec.recurrence || sizes.cp == 1) return "";
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (!passes_state(spec, layer)) continue;
    const auto what = undivided_heads(spec.recurrence->heads, spec.recurrence->groups, sizes);
    if (!what.empty())
      return fmt::format("layer {} is {}: its {} per rank are not divisible by cp_size {}", layer,
                         arch::name_of(spec.mixer(layer)), what, sizes.cp);
  }
  return "";
}

bool exchanges_attention(const arch::ModelSpec& spec, std::int64_t shortest) {
  for (int layer = 0; layer < spec.layers; ++layer)
    if (spec.attends(layer) && !(spec.index && spec.index->limits(layer, shortest))) return true;
  return false;
}

ContextPlan choose_context_plan(const config::LoadedRecipe& loaded, const ModelChoice* model,
                                const arch::TensorPlan& tensor, const mesh::MeshSizes& sizes, std::int64_t shortest,
                                Located& report) {
  const auto& m = loaded.recipe.model_parallel();
  const auto& levels = m.hierarchical_context_parallel_sizes();
  ContextPlan plan{.keys = sizes.cp};
  const auto type = m.cp_comm_type();
  if (sizes.cp == 1) {
    for (const std::string key : {kTypeKey, kSizesKey})
      if (report.given(key) && (key == kTypeKey || levels))
        report.warn("no-effect", key)
            .says(key + " has no effect with cp_size 1")
            .hint("set distributed.cp_size to 2 or more");
    return plan;
  }
  plan.gather = type == ContextCommunication::kAllGather;
  if (type == ContextCommunication::kA2a) {
    plan.heads = sizes.cp;
    plan.keys = 1;
  } else if (type == ContextCommunication::kA2aP2p) {
    if (levels)
      read_levels(*levels, sizes.cp, plan, report);
    else
      report.refuse("missing-key", kSizesKey)
          .says("cp_comm_type a2a+p2p needs hierarchical_context_parallel_sizes")
          .hint("for example [2, {}]", std::max(1, sizes.cp / 2));
  }
  if (levels && type != ContextCommunication::kA2aP2p)
    report.warn("no-effect", kSizesKey)
        .says("hierarchical_context_parallel_sizes has no effect with this cp_comm_type")
        .hint("set model_parallel.cp_comm_type to a2a+p2p");
  const auto undivided = model != nullptr ? undivided_state(model->spec, sizes) : "";
  if (!undivided.empty())
    report.refuse("recurrent-context", "distributed.cp_size")
        .says("{}, and its state is passed from token to token", undivided)
        .hint(
            "choose a cp_size that divides them; tensor parallelism with sequence_parallel shards a sequence's "
            "activations, too");
  if (model == nullptr || plan.heads == 1 || !exchanges_attention(model->spec, shortest)) return plan;
  const auto& spec = model->spec;
  const bool divided = sizes.tp > 1 && tensor.style_of(model->layout.layer_fqn(0) + ".self_attn.o_proj") !=
                                           arch::TensorStyle::kRowwiseSplit;
  const auto here = [&](int heads) { return divided ? std::max(1, heads / sizes.tp) : heads; };
  int groups = here(spec.kv_heads);
  if (spec.full_heads && groups % plan.heads == 0) groups = here(spec.full_heads->kv_heads);
  if (groups % plan.heads != 0)
    report.refuse("indivisible", plan.keys == 1 ? kTypeKey : kSizesKey)
        .says("{} key-value heads per rank are not divisible by the {} ranks that exchange heads", groups, plan.heads)
        .hint("use fewer ranks in the all-to-all (a2a+p2p), or cp_comm_type p2p or all_gather")
        .exits(ExitCode::kRefused);
  return plan;
}

}  // namespace automodel::plan
