#include "estimate/disk_room.h"

#include "base/bytes.h"
#include "base/find_file.h"
#include "estimate/state_bytes.h"

namespace automodel::estimate {

Diagnostics check_disk(const plan::TrainingPlan& plan, const config::CheckpointConfig& section) {
  if (!section.enabled() || !plan.model) return {};
  const auto room = free_bytes(section.checkpoint_dir());
  const double needed = saved_bytes(plan);
  if (!room || needed <= *room) return {};
  return {Diagnostic{"disk-space"}
              .says("a checkpoint takes {}, but the disk of '{}' has {} left", format_bytes(needed),
                    nearest_folder(section.checkpoint_dir()).native(), format_bytes(*room))
              .hint("free some, choose another checkpoint.checkpoint_dir, or set checkpoint.enabled: false")
              .of("checkpoint.checkpoint_dir")};
}

}  // namespace automodel::estimate
