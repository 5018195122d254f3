#include "estimate/estimated_plan.h"

#include "estimate/past_runs.h"
#include "plan/costs.h"

namespace automodel::estimate {
namespace {

class MachineCosts : public plan::Costs {
 public:
  explicit MachineCosts(const PlanRequest& request) : request_(request) {}

  bool is_gpu(std::string_view profile) const override { return find_device(profile) != nullptr; }

  void check_machine(const plan::TrainingPlan& plan, const config::Recipe& recipe,
                     plan::Located& report) const override {
    Diagnostics problems;
    hardware(plan, recipe, problems);
    report.refuse_all(std::move(problems), "");
  }

  plan::SplitCost layers(const plan::TrainingPlan& plan, const config::Recipe& recipe) const override {
    return split_cost(plan, time_request(plan, recipe, hardware(plan, recipe)));
  }

  plan::PeakMemory memory(const plan::TrainingPlan& plan, const config::Recipe& recipe) const override {
    // Copies for checkpoints come and go: a split is not changed for them.
    auto request = memory_request(plan, recipe, hardware(plan, recipe));
    request.saves = request.saves_in_background = false;
    const auto planned = plan_memory(plan, request);
    plan::PeakMemory out{.capacity = planned.capacity};
    for (const auto& rank : planned.ranks) out.ranks.push_back(rank.most().total());
    return out;
  }

  Hardware hardware(const plan::TrainingPlan& plan, const config::Recipe& recipe, Diagnostics& problems) const {
    return plan_hardware(plan, recipe, request_.ranks_per_node, request_.calibration, problems);
  }
  /// Problems are check_machine's to report.
  Hardware hardware(const plan::TrainingPlan& plan, const config::Recipe& recipe) const {
    Diagnostics reported;
    return hardware(plan, recipe, reported);
  }

 private:
  const PlanRequest& request_;
};

}  // namespace

PlanResult make_plan(const config::LoadedRecipe& loaded, const PlanRequest& request) {
  const MachineCosts costs(request);
  auto made = plan::make_plan(
      loaded,
      {.world_size = request.world_size, .training = request.training, .cuda_available = request.cuda_available},
      costs);
  PlanResult out{.problems = std::move(made.problems), .warnings = std::move(made.warnings), .exit = made.exit};
  if (!made.plan) return out;
  auto& plan = out.plan.emplace(EstimatedPlan{std::move(*made.plan)});
  if (plan.pipeline && plan.model)
    plan.estimate = make_estimate(plan, loaded.recipe, costs.hardware(plan, loaded.recipe));
  if (request.calibration != nullptr) apply_past_runs(*request.calibration, plan);
  return out;
}

}  // namespace automodel::estimate
