// `automodel plan --calibrate`: measures the cost of a model's parts on this machine, with the training code.
#pragma once

#include "base/error.h"
#include "comm/world.h"
#include "config/recipe.h"

namespace automodel::train {

enum class Measured {
  kModel,        ///< the recipe's model, at its microbatch size
  kUsualModels,  ///< models of three common widths, without a recipe
  kLinks,        ///< communication only
};

/// Measures layers, embedding, head and optimizer of a model and, with several ranks, messages between them; all ranks
/// of `world` compute at the same time. Rank 0 writes the calibration file. Throws Error: the recipe's problems,
/// `no-device` for a recipe that needs GPUs, `too-large-to-measure` if a layer does not fit in this machine's memory,
/// `cannot-write`.
void run_calibration(const config::LoadedRecipe& loaded, comm::World& world, Measured what);

}  // namespace automodel::train
