// Whether the disk of a run's checkpoints has room for one.
#pragma once

#include "base/diagnostic.h"
#include "config/run_config.h"
#include "plan/training_plan.h"

namespace automodel::estimate {

/// `disk-space` if checkpoints are written and the file system of checkpoint_dir, or of its nearest folder that exists,
/// has fewer free bytes than saved_bytes(): an older checkpoint is removed only when the new one is complete.
Diagnostics check_disk(const plan::TrainingPlan& plan, const config::CheckpointConfig& section);

}  // namespace automodel::estimate
