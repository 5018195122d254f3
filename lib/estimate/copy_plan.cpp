#include "estimate/copy_plan.h"

#include <algorithm>

#include "estimate/state_bytes.h"
#include "plan/training_plan.h"

namespace automodel::estimate {
namespace {

/// Measured bandwidth of pinned device-to-host copies over PCIe 4 x16.
constexpr double kHostLink = 24e9;
/// Host memory bandwidth of a GPU machine, which profiles do not describe: eight channels of DDR4-3200.
constexpr double kHostMemory = 200e9;
/// Memory traffic per byte of state, which is converted, written, and checksummed as it is sent.
constexpr double kMoved = 4;

}  // namespace

double host_link() {
  return kHostLink;
}

std::optional<CopyPlan> plan_copies(const plan::TrainingPlan& plan, const config::Recipe& recipe,
                                    const Hardware& hardware) {
  const auto& section = recipe.checkpoint();
  if (!section.enabled() || !section.memory_every_steps()) return std::nullopt;
  return copies_every(*section.memory_every_steps(), plan, hardware);
}

CopyPlan copies_every(int every, const plan::TrainingPlan& plan, const Hardware& hardware) {
  CopyPlan out{.every = every};
  const int world = plan.mesh.world_size(), on_host = std::clamp(hardware.per_node, 1, world);
  out.hosts = (world + on_host - 1) / on_host;
  out.state = saved_bytes(plan);
  const double rank = out.state / world, copies = out.hosts > 1 ? 2 : 1;
  out.host = rank * on_host * copies;
  const double memory = plan.cuda ? kHostMemory / on_host : hardware.memory_bandwidth;
  // State on the host is written to files directly, device state through a buffer.
  out.waiting = plan.cuda ? rank / kHostLink : memory > 0 ? kMoved * rank / memory : 0;
  out.background = memory > 0 ? kMoved * copies * rank / memory : 0;
  if (out.hosts > 1 && hardware.network.bandwidth > 0) out.background += rank / hardware.network.bandwidth;
  return out;
}

double copy_seconds(const CopyPlan& copies, double step) {
  // A copy waits for the previous one to complete.
  const double late = std::max(0.0, copies.background - copies.every * step);
  return (copies.waiting + late) / copies.every;
}

}  // namespace automodel::estimate
