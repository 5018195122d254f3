// A run from a recipe's text that a test steps explicitly.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "estimate/estimated_plan.h"
#include "parity/parity.h"
#include "train/gather.h"
#include "train/initial_values.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace automodel::test {

class Session {
 public:
  Session(comm::World& world, const std::string& text, const parallel::WeightSource& source = {})
      : loaded_(load_recipe(text)),
        setup_(loaded_, world),
        runtime_(setup_.plan, world, source ? source : train::initial_values(setup_.plan)),
        trainer_(runtime_, *setup_.rates) {}

  void step(std::int64_t step) { trainer_.step(step, batches(step), false); }
  train::StepResult gradients(std::int64_t step) { return trainer_.gradients(step, batches(step), false); }
  train::Runtime& runtime() { return runtime_; }
  const estimate::EstimatedPlan& plan() const { return setup_.plan; }

 private:
  std::vector<data::Batch> batches(std::int64_t step) const {
    const auto plan = setup_.steps->plan(step);
    return setup_.loader->load(plan.epoch, plan.step_in_epoch);
  }
  config::LoadedRecipe loaded_;
  train::Setup setup_;
  train::Runtime runtime_;
  train::Trainer trainer_;
};

/// Provides a rank's values from whole tensors; `values` must outlive it.
inline parallel::WeightSource source_of(const std::map<std::string, at::Tensor>& values) {
  return [&values](const model::Weight& weight, std::int64_t first, const at::Tensor& out) {
    const auto& name = weight.info.tied_to.empty() ? weight.info.fqn : weight.info.tied_to;
    out.copy_(values.at(name).reshape({-1}).narrow(0, first, out.numel()));
  };
}

}  // namespace automodel::test
