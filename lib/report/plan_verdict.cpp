#include "report/plan_verdict.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"

namespace automodel::report {
namespace {

/// Parts below this share of the step are not worth a word.
constexpr double kNoticeable = 0.02;

std::string memory_verdict(const estimate::MemoryPlan& memory) {
  if (!memory.capacity) return "memory of the device unknown";
  const auto amount = fmt::format("{} of {}", format_bytes(memory.peak()), format_bytes(*memory.capacity));
  if (memory.fit == estimate::Fit::kDoesNotFit)
    return fmt::format("DOES NOT FIT, {} (--search finds plans that do)", amount);
  return memory.fit == estimate::Fit::kTight ? "fits barely, " + amount : "fits, " + amount;
}

/// The one or two largest parts of a step.
std::string slowest_parts(const estimate::EstimatedPlan& plan) {
  const auto& time = plan.estimate->time;
  const auto& sizes = plan.mesh.sizes();
  const bool talks = sizes.tp > 1 || sizes.cp > 1 || sizes.ep > 1;
  std::vector<std::pair<double, std::string_view>> parts = {
      {time.schedule * (1 - time.bubble), talks ? "layers with their communication" : "computation"},
      {time.schedule * time.bubble, "pipeline waits"},
      {time.communication, "data-parallel communication"},
      {time.optimizer, "optimizer"},
      {time.copies, "copies in memory"},
      {time.overhead, "reading batches and launching kernels"}};
  std::ranges::stable_sort(parts, std::ranges::greater{}, &std::pair<double, std::string_view>::first);
  const auto share = [&](std::size_t i) { return time.step > 0 ? parts[i].first / time.step : 0; };
  std::string out = fmt::format("slowest part: {} ({:.0f}%)", parts[0].second, 100 * share(0));
  if (share(1) >= kNoticeable) out += fmt::format(", then {} ({:.0f}%)", parts[1].second, 100 * share(1));
  return out;
}

}  // namespace

std::string verdict(const estimate::EstimatedPlan& plan) {
  std::string out = plan.unsupported.empty() ? "" : "can be planned, not trained; ";
  if (!plan.estimate) return out + (plan.model ? "memory and time unknown" : "sizes unknown");
  return out + fmt::format("{}; {} tokens/s; {}", memory_verdict(plan.estimate->memory),
                           format_count(plan.estimate->time.tokens_per_second), slowest_parts(plan));
}

}  // namespace automodel::report
