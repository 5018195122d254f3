#include "estimate/search.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include <fmt/format.h>

#include "arch/counts.h"
#include "base/bytes.h"
#include "config/recipe_change.h"
#include "config/rewritten.h"
#include "estimate/coarse_cost.h"

namespace automodel::estimate {
namespace {

using Clock = std::chrono::steady_clock;

/// A schedule that the search tries; null: no pipeline.
struct Choice {
  const schedule::Generator* generator = nullptr;
  int stages_per_rank = 1;
  std::string_view name() const { return generator == nullptr ? "-" : generator->name; }
};
/// Every schedule of the table that the search tries, with 1, 2, 4 and 8 stages per rank where it allows them.
std::vector<Choice> choices() {
  std::vector<Choice> out;
  for (const auto& each : schedule::generators()) {
    if (!each.not_searched.empty()) continue;
    for (const int stages : {1, 2, 4, 8}) {
      // For one stage per rank there are single-stage schedules.
      const int least = each.single_stage ? 1 : std::max(2, each.min_stages_per_rank);
      if (stages >= least && (each.max_stages_per_rank == 0 || stages <= each.max_stages_per_rank))
        out.push_back({&each, stages});
    }
  }
  return out;
}

struct Recomputation {
  plan::Recompute kind;
  std::string_view name;
};
constexpr std::array kRecomputations = {
    Recomputation{plan::Recompute::kNone, "off"},
    Recomputation{plan::Recompute::kSelective, "selective"},
    Recomputation{plan::Recompute::kFull, "full"},
};
constexpr std::array kMicrobatches = {1, 2, 4, 8};
constexpr int kLate = 4;  // extra plans after the time limit if none fits yet
// From this length on, context parallelism is tried even if the recipe has none.
constexpr std::int64_t kLongSequence = 32768;

/// A candidate before it is planned.
struct Draft {
  CoarseRequest request = {};  ///< its sharding determines whether gradients are reduced after every microbatch
  Choice choice = {};
  Recomputation recompute = kRecomputations[0];
  CoarseCost cost = {};
};

class Search {
 public:
  Search(const config::LoadedRecipe& recipe, const SearchRequest& request) : recipe_(recipe), request_(request) {}

  SearchResult run() {
    out_.world_size = request_.world_size;
    if (auto base = plan_base()) {
      base_ = std::move(base);
      out_.hardware = base_->estimate->hardware;
      draft_all();
      plan_best();
      plan_own();
    }
    out_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    for (auto& [reason, refusal] : refused_) out_.refused.push_back(std::move(refusal));
    std::sort(out_.refused.begin(), out_.refused.end(),
              [](const Refusal& a, const Refusal& b) { return a.count > b.count; });
    return std::move(out_);
  }

 private:
  std::optional<EstimatedPlan> make(const config::LoadedRecipe& loaded, int world, Diagnostics& problems) {
    if (!loaded.problems.empty()) {
      problems = loaded.problems;
      return std::nullopt;
    }
    auto plan = request_.plan;
    plan.world_size = world;
    plan.compares_features = false;  // of candidates nobody sees it
    auto result = make_plan(loaded, plan);
    problems = std::move(result.problems);
    return std::move(result.plan);
  }

  /// Plans the model for one rank, which determines its sizes, types and the machine.
  std::optional<EstimatedPlan> plan_base() {
    const auto alone = config::changed(recipe_, [this](config::Recipe& recipe) {
      set_mesh(recipe, {});
      recipe.distributed->dp_size = std::nullopt;
      recipe.step_scheduler->local_batch_size = 1;
      recipe.model_parallel->sequence_parallel = false;
      drop_stages(recipe);
    });
    auto plan = make(alone, 1, out_.problems);
    if (plan && !plan->estimate) {
      out_.problems.add("missing-key", "model")
          .says("the sizes of the model are unknown")
          .hint("give '--model.config PATH'");
      return std::nullopt;
    }
    strategy_ = alone.recipe.distributed();
    return plan;
  }

  /// Considers only Megatron Core's key, which is rejected without tensor parallelism.
  bool asks_for_sequence_parallel() const { return recipe_.recipe.model_parallel->sequence_parallel(); }

  bool overlaps() const {
    const auto* fsdp = std::get_if<config::FSDP2Config>(&recipe_.recipe.distributed->strategy());
    return recipe_.recipe.model_parallel->tp_comm_overlap() ||
           (fsdp != nullptr && fsdp->enable_async_tensor_parallel());
  }

  void refuse(std::string reason, const std::string& example) {
    auto& refusal = refused_[reason];
    if (refusal.count++ == 0) refusal.example = example;
    refusal.reason = std::move(reason);
  }

  std::vector<int> divisors_up_to(int number, int most) const {
    std::vector<int> out;
    for (int i = 1; i <= std::min(number, most); ++i)
      if (number % i == 0) out.push_back(i);
    return out;
  }

  void draft_all() {
    const auto& spec = base_->model->spec;
    const int world = request_.world_size;
    const int asked_cp = recipe_.recipe.distributed->cp_size().value_or(1);
    std::vector<int> cps = {std::max(1, asked_cp)};
    if (sequence() >= kLongSequence) cps = {1, 2, 4, 8, 16};
    for (const int tp : divisors_up_to(world, std::max(1, out_.hardware.per_node)))
      for (const int cp : cps)
        for (const int pp : divisors_up_to(world, spec.layers)) {
          if (world % (tp * cp * pp) != 0) continue;
          const int dp = world / (tp * cp * pp);
          const std::string mesh = fmt::format("pp {} tp {} dp {}", pp, tp, dp);
          if (spec.heads % tp != 0 || spec.kv_heads % tp != 0) {
            refuse(fmt::format("{} key-value heads cannot be split evenly over tp", spec.kv_heads), mesh);
          } else if (spec.recurrence && spec.recurrence->groups % tp != 0) {
            refuse(fmt::format("{} groups of recurrent layers cannot be split evenly over tp", spec.recurrence->groups),
                   mesh);
          } else if (!plan::undivided_state(spec, {.cp = cp, .tp = tp}).empty()) {
            refuse("heads of recurrent layers cannot be split evenly over cp", mesh);
          } else if (cp > 1 && sequence() % (std::int64_t{2} * cp) != 0) {
            refuse("the sequence cannot be split evenly over cp", mesh);
          } else if (base_->batch.global % dp != 0) {
            refuse(fmt::format("{} sequences per step cannot be split evenly over dp", base_->batch.global), mesh);
          } else {
            for (const int ep : experts_over(dp * cp * tp)) draft_mesh(sizes_of(pp, dp, cp, tp, ep));
          }
        }
    std::sort(drafts_.begin(), drafts_.end(), [](const Draft& a, const Draft& b) { return a.cost.step < b.cost.step; });
  }

  std::vector<int> experts_over(int ranks) const {
    const auto& spec = base_->model->spec;
    if (!spec.moe) return {1};
    std::vector<int> out;
    for (int ep = 1; ep <= std::min(ranks, spec.moe->experts); ep *= 2)
      if (ranks % ep == 0 && spec.moe->experts % ep == 0) out.push_back(ep);
    return out;
  }

  mesh::MeshSizes sizes_of(int pp, int dp, int cp, int tp, int ep) const {
    const bool ddp = base_->mesh.strategy() == mesh::Strategy::kDdp;
    return {.pp = pp, .dp_replicate = ddp ? dp : 1, .dp_shard = ddp ? 1 : dp, .cp = cp, .tp = tp, .ep = ep};
  }

  std::int64_t sequence() const { return base_->batch.planned_length(); }
  double trained_share() const {
    const auto all = static_cast<double>(arch::count_parameters(base_->model->spec).total());
    if (base_->frozen) return 1 - static_cast<double>(base_->frozen->elements) / all;
    if (!base_->adapters) return 1;
    const auto elements = static_cast<double>(base_->adapters->elements);
    return elements / (elements + all);
  }

  double mean_moments() const {
    const auto moments = moments_of(base_->optimizer);
    if (base_->adapters) return moments.of_matrices;
    double matrices = 0;
    for (int layer = 0; layer < base_->model->spec.layers; ++layer)
      matrices += base_->shares.layer(layer).dense_matrices + base_->shares.layer(layer).expert_matrices;
    const auto all = static_cast<double>(arch::count_parameters(base_->model->spec).total());
    return moments.tensors(all, std::min(all, matrices)) / all;
  }

  void draft_mesh(const mesh::MeshSizes& sizes) {
    const int local = base_->batch.global / sizes.dp();
    const bool fsdp = base_->mesh.strategy() == mesh::Strategy::kFsdp2;
    plan::Sharding sharding = plan::plan_sharding(*strategy_, sizes);
    sharding.sequence_parallel =
        (fsdp || asks_for_sequence_parallel()) && sizes.tp > 1 && sequence() % (std::int64_t{sizes.tp} * sizes.cp) == 0;
    CoarseRequest request{.spec = &base_->model->spec,
                          .layout = &base_->model->layout,
                          .sizes = sizes,
                          .sharding = sharding,
                          .types = base_->types,
                          .bytes = state_bytes(*base_, sharding),
                          .overlapped = overlaps(),
                          .hardware = out_.hardware,
                          .cuda = base_->cuda,
                          .sequence = sequence(),
                          .loss = base_->execution.loss,
                          .moments = mean_moments(),
                          .trained = trained_share()};
    for (const int microbatch : kMicrobatches) {
      if (local % microbatch != 0) continue;
      request.microbatch = microbatch;
      request.microbatches = local / microbatch;
      if (sizes.pp == 1) {
        draft(request, Choice());
        continue;
      }
      for (const auto& choice : choices_) draft(request, choice);
    }
  }

  void draft(CoarseRequest request, const Choice& choice) {
    const int stages = request.sizes.pp * choice.stages_per_rank;
    request.stages_per_rank = choice.stages_per_rank;
    if (stages > request.spec->layers)
      return refuse("more stages than layers", fmt::format("{} with pp {}", choice.name(), request.sizes.pp));
    if (request.sizes.pp > 1 && request.microbatches < request.sizes.pp)
      return refuse(
          "fewer microbatches than pipeline ranks",
          fmt::format("pp {}, {} microbatches of {}", request.sizes.pp, request.microbatches, request.microbatch));
    if (choice.generator != nullptr) {
      const schedule::Request sizes{
          .ranks = request.sizes.pp, .stages_per_rank = choice.stages_per_rank, .microbatches = request.microbatches};
      if (!schedule::check_request(*choice.generator, sizes).empty())
        return refuse(fmt::format("{} cannot run so many microbatches", choice.name()),
                      fmt::format("pp {} with {} stages, {} microbatches of {}", request.sizes.pp, stages,
                                  request.microbatches, request.microbatch));
      request.schedule = scales_.of(*choice.generator, sizes);
    }
    const bool fsdp = base_->mesh.strategy() == mesh::Strategy::kFsdp2 && request.sharding.shards > 1;
    for (const bool defer : {true, false})
      for (const auto& recompute : kRecomputations) {
        if (!fsdp && !defer) continue;                             // gradients stay whole anyway
        if (fsdp && defer && request.microbatches == 1) continue;  // deferring changes nothing
        if (fsdp) request.sharding.defer_reduction = defer;
        request.recompute = recompute.kind;
        draft(request, choice, recompute);
      }
  }

  void draft(const CoarseRequest& request, const Choice& choice, const Recomputation& recompute) {
    ++out_.considered;
    Draft draft{request, choice, recompute, coarse_cost(request)};
    // With a margin of a third, so that candidates that are slightly too large are left to the actual estimate.
    if (out_.hardware.memory && draft.cost.memory > 1.33 * *out_.hardware.memory) {
      return note_unfit(draft.cost.memory, name_of(draft));
    }
    drafts_.push_back(std::move(draft));
  }

  void note_unfit(double bytes, const std::string& name) {
    auto& refusal = refused_["does not fit"];
    refusal.reason = "does not fit";
    ++refusal.count;
    if (refusal.example.empty() || bytes < smallest_unfit_) {
      smallest_unfit_ = bytes;
      refusal.example = fmt::format("nearest needs {}: {}", format_bytes(bytes), name);
    }
  }

  static std::string name_of(const Draft& draft) {
    const auto& s = draft.request.sizes;
    std::string out = fmt::format("pp {} tp {} dp {}", s.pp, s.tp, s.dp());
    if (s.cp > 1) out += fmt::format(" cp {}", s.cp);
    if (s.ep > 1) out += fmt::format(" ep {}", s.ep);
    return out + fmt::format(", {}, microbatch {}, recompute {}", schedule_of(draft), draft.request.microbatch,
                             draft.recompute.name);
  }
  static std::string schedule_of(const Draft& draft) {
    return draft.choice.stages_per_rank == 1 ? std::string(draft.choice.name())
                                             : fmt::format("{} x{}", draft.choice.name(), draft.choice.stages_per_rank);
  }

  /// Sets Megatron Core's size keys as well if the recipe has them, since the two must agree.
  void set_mesh(config::Recipe& recipe, const mesh::MeshSizes& sizes) const {
    auto& ours = recipe.distributed();
    auto& megatron = recipe.model_parallel();
    const auto set = [&](config::Field<std::optional<int>>& key, config::Field<int>& other, const char* name,
                         int size) {
      key = size;
      if (recipe_.origins.find(std::string("model_parallel.") + name) != nullptr) other = size;
    };
    set(ours.pp_size, megatron.pipeline_model_parallel_size, "pipeline_model_parallel_size", sizes.pp);
    set(ours.tp_size, megatron.tensor_model_parallel_size, "tensor_model_parallel_size", sizes.tp);
    set(ours.cp_size, megatron.context_parallel_size, "context_parallel_size", sizes.cp);
    set(ours.ep_size, megatron.expert_model_parallel_size, "expert_model_parallel_size", sizes.ep);
    ours.dp_size = sizes.dp();
    ours.dp_replicate_size = std::nullopt;
    megatron.expert_tensor_parallel_size = std::nullopt;  // the search divides experts among ranks only
  }

  /// Removes virtual stages, which need a pipeline. The pipeline section itself stays: without a pipeline only its
  /// sequence length matters.
  static void drop_stages(config::Recipe& recipe) {
    recipe.model_parallel->virtual_pipeline_model_parallel_size = std::nullopt;
  }

  void change(config::Recipe& recipe, const Draft& draft) const {
    const auto& request = draft.request;
    const auto& s = request.sizes;
    set_mesh(recipe, s);
    std::visit([&](auto& strategy) { strategy.activation_checkpointing = draft.recompute.kind; },
               recipe.distributed->strategy());
    // Without a pipeline, an accumulation step is one microbatch.
    recipe.step_scheduler->local_batch_size =
        s.pp == 1 ? request.microbatch : request.microbatch * request.microbatches;
    if (auto* fsdp = std::get_if<config::FSDP2Config>(&recipe.distributed->strategy())) {
      fsdp->sequence_parallel = request.sharding.sequence_parallel;
      fsdp->defer_fsdp_grad_sync = request.sharding.defer_reduction;
    }
    if (asks_for_sequence_parallel()) recipe.model_parallel->sequence_parallel = request.sharding.sequence_parallel;
    if (s.pp == 1) return drop_stages(recipe);
    set_schedule(recipe, draft.choice.name(), request.microbatch);
    config::LayersPerStage layers;
    for (const auto& range : plan::balanced_layers(s.pp * draft.choice.stages_per_rank, cost_))
      layers.counts.push_back(range.size());
    recipe.distributed->pipeline->layers_per_stage = std::move(layers);
    if (recipe.model_parallel->virtual_pipeline_model_parallel_size())
      recipe.model_parallel->virtual_pipeline_model_parallel_size = draft.choice.stages_per_rank;
  }

  void plan_best() {
    const auto& spec = base_->model->spec;
    for (int i = 0; i < spec.layers; ++i)
      cost_.layers.push_back(arch::layer_flops_per_token(spec, base_->model->layout, i, sequence()));
    cost_.last = arch::head_flops_per_token(spec);
    int late = 0;
    for (const auto* draft : in_turn()) {
      if (out_.planned >= request_.plans && std::ranges::any_of(out_.best, roomy)) break;
      if (out_.planned >= 4 * request_.plans) break;
      if (std::chrono::duration<double>(Clock::now() - begin_).count() > request_.patience) {
        // If nothing fits yet, try a few more of those that should fit.
        if (!out_.best.empty() || late == kLate) break;
        if (doubtful(*draft)) continue;
        ++late;
      }
      plan_draft(*draft);
    }
    out_.untried = static_cast<int>(drafts_.size()) - out_.planned;
    // A tight plan is one allocation away from failing, so plans with room come first.
    std::sort(out_.best.begin(), out_.best.end(), [](const Candidate& a, const Candidate& b) {
      return std::pair(!roomy(a), a.step) < std::pair(!roomy(b), b.step);
    });
    if (static_cast<int>(out_.best.size()) > request_.show) out_.best.resize(static_cast<std::size_t>(request_.show));
  }

  static bool roomy(const Candidate& candidate) { return candidate.fit != Fit::kTight; }
  bool doubtful(const Draft& draft) const { return out_.hardware.memory && draft.cost.memory > *out_.hardware.memory; }
  /// Ordered by time, alternating candidates that probably do not fit with ones that do.
  std::vector<const Draft*> in_turn() const {
    std::vector<const Draft*> fits, doubts, out;
    for (const auto& draft : drafts_) (doubtful(draft) ? doubts : fits).push_back(&draft);
    auto fit = fits.begin(), doubt = doubts.begin();
    while (fit != fits.end() || doubt != doubts.end()) {
      const bool again = !out.empty() && doubtful(*out.back());
      if (doubt == doubts.end() || (fit != fits.end() && (again || (*fit)->cost.step <= (*doubt)->cost.step)))
        out.push_back(*fit++);
      else
        out.push_back(*doubt++);
    }
    return out;
  }

  /// Plans the recipe as is, for comparison.
  void plan_own() {
    Diagnostics problems;
    const auto plan = make(recipe_, request_.world_size, problems);
    if (!plan || !plan->estimate) return;
    const auto& section = recipe_.recipe.distributed();
    Candidate own{
        .sizes = plan->mesh.sizes(),
        .schedule = plan->pipelined ? plan->pipeline->name : "-",
        .microbatch = plan->batch.microbatch,
        .recompute = std::string(
            kRecomputations[static_cast<std::size_t>(section.checkpointing() == plan::Recompute::kNone        ? 0
                                                     : section.checkpointing() == plan::Recompute::kSelective ? 1
                                                                                                              : 2)]
                .name),
        .reduce = plan->sharding.defer_reduction ? "step" : "microbatch"};
    const int stages = plan->pipeline->schedule.shape.stages / own.sizes.pp;
    if (stages > 1) own.schedule += fmt::format(" x{}", stages);
    fill(own, *plan->estimate);
    out_.own = std::move(own);
  }

  static void fill(Candidate& candidate, const Estimate& estimate) {
    const auto& time = estimate.time;
    candidate.memory = estimate.memory.peak();
    candidate.fit = estimate.memory.fit;
    candidate.step = time.step;
    candidate.tokens_per_second = time.tokens_per_second;
    candidate.mfu = time.mfu;
    candidate.bubble = time.bubble;
    candidate.parts.bubble = time.bubble * time.schedule;
    candidate.parts.data_parallel = time.communication;
    candidate.parts.optimizer = time.optimizer;
    for (const auto& each : time.traffic) {
      if (each.axis == mesh::Axis::kTp) candidate.parts.tensor += each.seconds;
      if (each.axis == mesh::Axis::kEp) candidate.parts.experts += each.seconds;
    }
  }

  void plan_draft(const Draft& draft) {
    ++out_.planned;
    const auto loaded = config::changed(recipe_, [&](config::Recipe& recipe) { change(recipe, draft); });
    const auto own = static_cast<std::ptrdiff_t>(recipe_.overrides.size());
    Candidate candidate{.overrides = {loaded.overrides.begin() + own, loaded.overrides.end()},
                        .sizes = draft.request.sizes,
                        .schedule = schedule_of(draft),
                        .microbatch = draft.request.microbatch,
                        .recompute = std::string(draft.recompute.name),
                        .reduce = draft.request.sharding.defer_reduction ? "step" : "microbatch"};
    Diagnostics problems;
    const auto plan = make(loaded, request_.world_size, problems);
    if (!plan || !plan->estimate)
      return refuse(problems.empty() ? "cannot be planned" : problems[0].message, name_of(draft));
    if (base_->unsupported.empty() && !plan->unsupported.empty())  // a mesh that pictures do not allow
      return refuse(plan->unsupported.front().reason, name_of(draft));
    fill(candidate, *plan->estimate);
    if (candidate.fit == Fit::kDoesNotFit) return note_unfit(candidate.memory, name_of(draft));
    out_.best.push_back(std::move(candidate));
  }

  const config::LoadedRecipe& recipe_;
  const SearchRequest& request_;
  Clock::time_point begin_ = Clock::now();
  SearchResult out_ = {};
  std::optional<EstimatedPlan> base_ = {};
  std::optional<config::DistributedConfig> strategy_ = {};
  const std::vector<Choice> choices_ = choices();
  ScheduleScales scales_ = {};
  std::vector<Draft> drafts_ = {};
  std::map<std::string, Refusal> refused_ = {};
  double smallest_unfit_ = 0;
  plan::SplitCost cost_ = {};
};

}  // namespace

SearchResult search_plans(const config::LoadedRecipe& recipe, const SearchRequest& request) {
  return Search(recipe, request).run();
}

void set_schedule(config::Recipe& recipe, std::string_view schedule, int microbatch) {
  auto& pipeline = recipe.distributed->pipeline();
  if (!pipeline) pipeline.emplace();
  pipeline->pp_schedule = std::string(schedule);
  pipeline->pp_microbatch_size = microbatch;
  pipeline->pp_schedule_csv = std::nullopt;
  pipeline->module_fqns_per_model_part = std::nullopt;
  pipeline->pipeline_model_parallel_layout = std::nullopt;
}

std::string apply_candidate(const config::LoadedRecipe& recipe, const Candidate& candidate) {
  Diagnostics problems;
  auto root = config::parse_yaml(recipe.text, recipe.path, problems);
  config::apply_overrides(root, recipe.overrides, problems);
  config::apply_overrides(root, candidate.overrides, problems);
  return config::rewritten(recipe.text, config::to_value(root));
}

}  // namespace automodel::estimate
