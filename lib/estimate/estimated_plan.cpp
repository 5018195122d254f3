#include "estimate/estimated_plan.h"

#include <algorithm>

#include "estimate/past_runs.h"
#include "plan/costs.h"

namespace automodel::estimate {
namespace {

/// The key that selected the compute dtype.
std::string key_of_type(const plan::Located& report) {
  for (const char* key : {"distributed.mp_policy", "model_parallel.bf16", "model_parallel.params_dtype"})
    if (report.given(key)) return key;
  return "model.torch_dtype";
}

/// Step time of the plan in float32 relative to the plan as is; 0 if only one of the two is based on measured rates.
double float32_ratio(const plan::TrainingPlan& plan, const config::Recipe& recipe, const PlanRequest& request,
                     const Estimate& estimate) {
  if (plan.cuda || plan.types.compute != DType::kBFloat16 || !request.bfloat16 ||
      request.bfloat16 == BFloat16Unit::kNone)
    return 0;
  auto wide = plan;
  wide.types.compute = wide.types.message = DType::kFloat32;
  Diagnostics same;
  const auto hardware = plan_hardware(wide, recipe, request.machine(), same);
  if (hardware.measured() != estimate.hardware.measured()) return 0;
  return plan_time(wide, hardware).step / plan_time(plan, estimate.hardware).step;
}

class MachineCosts : public plan::Costs {
 public:
  explicit MachineCosts(const PlanRequest& request) : request_(request) {}

  bool is_gpu(std::string_view profile) const override { return find_device(profile) != nullptr; }

  void check_machine(const plan::TrainingPlan& plan, const config::Recipe& recipe, plan::Located& report) override {
    machine(plan, recipe);
    if (!plan.cuda && plan.types.compute == DType::kBFloat16 && request_.bfloat16 == BFloat16Unit::kNone)
      report.warn("slow-bfloat16", key_of_type(report))
          .says(
              "this processor has no instructions for bfloat16 (AVX512-BF16, AMX or Arm's): a step is no faster than "
              "in float32")
          .hint("set model.torch_dtype: float32 to compute in float32, whatever the dtype of the model's files");
    report.refuse_all(std::move(problems_), "");
  }

  int ranks_per_machine(const plan::TrainingPlan& plan, const config::Recipe& recipe) override {
    Diagnostics same;                                                       // check_machine() reports them
    return plan_hardware(plan, recipe, request_.machine(), same).per_node;  // not kept: microbatches may be open
  }

  plan::SplitCost layers(const plan::TrainingPlan& plan, const config::Recipe& recipe) override {
    return split_cost(plan, machine(plan, recipe));
  }

  plan::PeakMemory memory(const plan::TrainingPlan& plan, const config::Recipe& recipe) override {
    const auto planned = plan_memory(plan, without_saves(plan, recipe));
    plan::PeakMemory out{.capacity = planned.capacity};
    for (const auto& rank : planned.ranks) out.ranks.push_back(rank.most().total());
    return out;
  }

  double step(const plan::TrainingPlan& plan, const config::Recipe& recipe) override {
    return plan_time(plan, machine(plan, recipe)).step;
  }

  schedule::PipelineCosts pipeline(const plan::TrainingPlan& plan, const config::Recipe& recipe) override {
    const auto& made = plan.pipeline->schedule;
    const auto times = schedule_costs(plan, machine(plan, recipe));
    schedule::PipelineCosts out;
    for (const auto& stage : times.stages) {
      out.forward.push_back(stage.forward);
      out.backward_input.push_back(stage.backward_input);
      out.backward_weight.push_back(stage.backward_weight);
    }
    for (const auto& edge : times.edges) out.message = std::max(out.message, edge.latency + edge.transfer);
    for (const auto& [all, kept] : stage_activations(plan)) {
      out.activation.push_back(all);
      out.kept.push_back(kept);
    }
    // What a rank holds besides, whatever the order: its peak less the activations of this order.
    const auto held = schedule::peak_activations(made.order, out);
    const auto planned = plan_memory(plan, without_saves(plan, recipe));
    for (std::size_t rank = 0; rank < held.size(); ++rank)
      out.standing.push_back(std::max(0.0, planned.ranks[rank].most().total() - held[rank]));
    return out;
  }

  /// Computed once, since the inputs do not change after the first call.
  const Hardware& machine(const plan::TrainingPlan& plan, const config::Recipe& recipe) {
    if (!machine_) machine_ = plan_hardware(plan, recipe, request_.machine(), problems_);
    return *machine_;
  }

 private:
  /// Checkpoint copies are temporary and influence neither the split nor the order.
  MemoryRequest without_saves(const plan::TrainingPlan& plan, const config::Recipe& recipe) {
    auto request = memory_request(recipe, machine(plan, recipe));
    request.saves = request.saves_in_background = false;
    return request;
  }

  const PlanRequest& request_;
  std::optional<Hardware> machine_ = {};
  Diagnostics problems_ = {};
};

/// `other`: the plan with the other choice.
FeatureCosts feature_costs(const plan::TrainingPlan& plan, const plan::TrainingPlan& other,
                           const config::Recipe& recipe, const Hardware& hardware) {
  const auto& features = *plan.features;
  const double size = size_of(plan.types.compute);
  const auto estimate = make_estimate(other, recipe, hardware);
  FeatureCosts out{.once = cached_tower_seconds(features.cached ? plan : other, hardware),
                   .file = features.bytes(static_cast<double>(plan::planned_picture_tokens(plan)), size),
                   .step = estimate.time.step,
                   .peak = estimate.memory.peak()};
  if (!features.facts) return out;
  out.pictures = static_cast<double>(features.facts->pictures);
  out.bytes = features.bytes(static_cast<double>(features.facts->tokens), size);
  if (out.pictures > 0) out.file = out.bytes / out.pictures;
  return out;
}

}  // namespace

EstimatedPlan::EstimatedPlan(plan::TrainingPlan plan) : plan::TrainingPlan(std::move(plan)) {}
EstimatedPlan::~EstimatedPlan() = default;
EstimatedPlan::EstimatedPlan(const EstimatedPlan&) = default;
EstimatedPlan::EstimatedPlan(EstimatedPlan&&) noexcept = default;
EstimatedPlan& EstimatedPlan::operator=(const EstimatedPlan&) = default;
EstimatedPlan& EstimatedPlan::operator=(EstimatedPlan&&) noexcept = default;

PlanResult make_plan(const config::LoadedRecipe& loaded, const PlanRequest& request) {
  MachineCosts costs(request);
  plan::PlanRequest wanted{.world_size = request.world_size,
                           .training = request.training,
                           .cuda_available = request.cuda_available,
                           .longest_row = request.longest_row,
                           .longest_validation_row = request.longest_validation_row,
                           .features = request.features};
  auto made = plan::make_plan(loaded, wanted, costs);
  PlanResult out{.problems = std::move(made.problems), .warnings = std::move(made.warnings)};
  if (!made.plan) return out;
  auto& plan = out.plan.emplace(std::move(*made.plan));
  if (plan.pipeline && plan.model) {
    plan.estimate = make_estimate(plan, loaded.recipe, costs.machine(plan, loaded.recipe));
    plan.estimate->float32_ratio = float32_ratio(plan, loaded.recipe, request, *plan.estimate);
  }
  // Beside a teacher nothing is cached, so that there is no other way.
  if (request.compares_features && plan.features && plan.estimate && !loaded.recipe.teacher_model()) {
    wanted.features.cached = !plan.features->cached;
    if (auto other = plan::make_plan(loaded, wanted, costs); other.plan)
      plan.feature_costs = feature_costs(plan, *other.plan, loaded.recipe, costs.machine(plan, loaded.recipe));
  }
  if (request.calibration != nullptr) apply_past_runs(*request.calibration, plan);
  return out;
}

}  // namespace automodel::estimate
