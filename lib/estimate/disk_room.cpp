#include "estimate/disk_room.h"

#include <system_error>

#include "base/bytes.h"
#include "base/find_file.h"
#include "estimate/state_bytes.h"

namespace automodel::estimate {

Diagnostics check_disk(const plan::TrainingPlan& plan, const config::CheckpointConfig& section) {
  if (!section.enabled() || !plan.model) return {};
  std::error_code error;
  const auto folder = nearest_folder(section.checkpoint_dir());
  const auto room = std::filesystem::space(folder, error);
  const double needed = saved_bytes(plan);
  // File systems without a size, such as the kernel's own and some network ones, report 0 in all.
  if (error || room.capacity == 0 || needed <= static_cast<double>(room.available)) return {};
  return {Diagnostic{"disk-space"}
              .says("a checkpoint takes {}, but the disk of '{}' has {} left", format_bytes(needed), folder.native(),
                    format_bytes(static_cast<double>(room.available)))
              .hint("free some, choose another checkpoint.checkpoint_dir, or set checkpoint.enabled: false")
              .of("checkpoint.checkpoint_dir")};
}

}  // namespace automodel::estimate
