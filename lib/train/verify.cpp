#include "train/verify.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>

#include "base/error.h"
#include "train/gather.h"
#include "train/initial_values.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace automodel::train {
namespace {

/// What is not a number is infinitely far from everything, itself included: comparisons would pass over it.
double distance(double difference, double size) {
  const double out = difference / size;
  return std::isnan(out) ? std::numeric_limits<double>::infinity() : out;
}

double relative(double a, double b) {
  return distance(std::abs(a - b), std::max(std::abs(b), 1e-30));
}

}  // namespace

Trace trace_steps(const config::LoadedRecipe& loaded, comm::World& world, int steps, int gradients_of,
                  RuntimeOptions options) {
  const Setup setup(loaded, world);
  Runtime runtime(setup.plan, world, initial_values(setup.plan, {.seed = setup.plan.weights.seed}), options);
  Trainer trainer(runtime, *setup.rates);
  Trace trace;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto plan = setup.steps->plan(step);
    const auto result = trainer.step(step, setup.loader->load(plan.epoch, plan.step_in_epoch), false);
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.grad_norm);
    if (step == (gradients_of < 0 ? steps - 1 : gradients_of)) trace.gradients = gather_gradients(runtime);
  }
  return trace;
}

std::vector<StepResult> results_of_steps(const config::LoadedRecipe& loaded, comm::World& world, int steps,
                                         StepHooks hooks) {
  const Setup setup(loaded, world);
  Runtime runtime(setup.plan, world, initial_values(setup.plan));
  Trainer trainer(runtime, *setup.rates, std::move(hooks));
  std::vector<StepResult> out;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto plan = setup.steps->plan(step);
    out.push_back(trainer.step(step, setup.loader->load(plan.epoch, plan.step_in_epoch), false));
  }
  return out;
}

Difference compare(const Trace& mesh, const Trace& single) {
  AUTOMODEL_CHECK(mesh.losses.size() == single.losses.size() && mesh.gradients.size() == single.gradients.size(),
                  "traces of different runs");
  Difference out;
  for (std::size_t i = 0; i < mesh.losses.size(); ++i) {
    out.loss = std::max(out.loss, relative(mesh.losses[i], single.losses[i]));
    out.norm = std::max(out.norm, relative(mesh.norms[i], single.norms[i]));
  }
  const double total = single.norms.back();
  for (const auto& [name, b] : single.gradients) {
    const auto& a = mesh.gradients.at(name);
    const double size = b.norm().item<double>();
    // The lower bound keeps gradients that are only rounding noise from dominating: they are compared relative to the
    // whole gradient.
    const double difference = distance((a - b).norm().item<double>(), std::max(size, 1e-4 * total));
    out.parameters.emplace_back(name, difference);
    if (difference <= out.gradient) continue;
    out.gradient = difference;
    out.worst = name;
  }
  return out;
}

}  // namespace automodel::train
