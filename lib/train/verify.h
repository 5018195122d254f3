// Verification: compares a few steps on a recipe's mesh with the same steps on one rank.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/world.h"
#include "config/recipe.h"
#include "train/trainer.h"

namespace automodel::train {

/// The results of a short run; the same on every rank.
struct Trace {
  std::vector<double> losses = {};
  std::vector<double> norms = {};
  std::map<std::string, at::Tensor> gradients = {};  ///< of one step, whole tensors in float64
};

/// Trains `steps` steps of the recipe in this world. Gradients are those of step `gradients_of` (from 0; -1: the last
/// one): in float64 the last step is the strictest test; in float32 only the first step's gradients have not drifted
/// apart yet.
Trace trace_steps(const config::LoadedRecipe& loaded, comm::World& world, int steps, int gradients_of = -1,
                  RuntimeOptions options = {});

/// The results of `steps` steps of the recipe in this world.
std::vector<StepResult> results_of_steps(const config::LoadedRecipe& loaded, comm::World& world, int steps,
                                         StepHooks hooks = {});

struct Difference {
  double loss = 0;  ///< largest relative difference over the steps
  double norm = 0;
  double gradient = 0;     ///< largest over the parameters: |a - b| / |b| in the 2-norm, |b| at least 1e-4 of the whole
                           ///< gradient's
  std::string worst = {};  ///< the parameter with that difference
  std::vector<std::pair<std::string, double>> parameters = {};  ///< gradient difference of each parameter
  bool within(double tolerance) const { return loss <= tolerance && norm <= tolerance && gradient <= tolerance; }
};
Difference compare(const Trace& mesh, const Trace& single);

}  // namespace automodel::train
