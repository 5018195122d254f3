// Cost of keeping copies of the training state in host memory (checkpoint.memory_every_steps).
#pragma once

#include <optional>

#include "config/recipe.h"
#include "estimate/hardware.h"
#include "plan/training_plan.h"

namespace automodel::estimate {

struct CopyPlan {
  int every = 0;  ///< steps between copies
  int hosts = 1;
  double state = 0;  ///< bytes of one complete copy
  /// Bytes per host and copy: the shards of its own ranks and, with several hosts, those of another host's.
  double host = 0;
  double waiting = 0;     ///< seconds that a copy adds to its step
  double background = 0;  ///< seconds until the copy is complete, in the background of later steps
  /// Peak bytes per host: the old copy is removed only when the new one is complete.
  double most() const { return 2 * host; }
};

/// Bytes per second of pinned device-to-host copies.
double host_link();
/// Copies every `every` steps. Times do not account for contention with concurrent steps.
CopyPlan copies_every(int every, const plan::TrainingPlan& plan, const Hardware& hardware);
/// Empty if the recipe requests none.
std::optional<CopyPlan> plan_copies(const plan::TrainingPlan& plan, const config::Recipe& recipe,
                                    const Hardware& hardware);
/// Average seconds that copies add to a step that takes `step` seconds without them.
double copy_seconds(const CopyPlan& copies, double step);

}  // namespace automodel::estimate
