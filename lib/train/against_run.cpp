#include "train/against_run.h"

#include <cstdio>

#include "against/finding.h"
#include "train/dumped_step.h"

namespace automodel::train {

ExitCode run_against(const std::string& folder, std::optional<double> tolerance, bool json, comm::World& world) {
  DumpedStep step(folder, world);
  auto evidence = step.evidence();
  if (tolerance) evidence.tolerance.relative = *tolerance;
  const auto comparison = against::compare(evidence, step);
  const auto text = json ? against::to_json(comparison) : against::to_text(comparison);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  return comparison.equal() ? ExitCode::kOk : ExitCode::kRefused;
}

}  // namespace automodel::train
