#include "plan/idle_sections.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/spelling.h"

namespace automodel::plan {
namespace {

/// A name that no validation set has would leave the run without its best checkpoint.
void warn_of_idle_ranking(const config::Recipe& recipe, Located& report) {
  const auto& name = recipe.checkpoint->best_metric_key();
  std::vector<std::string_view> sets;
  if (recipe.validation_dataset()) sets.emplace_back("default");
  for (const auto& [each, dataset] : recipe.validation_datasets()) sets.emplace_back(each);
  if (sets.empty() ? name == "default" : std::ranges::find(sets, name) != sets.end()) return;
  report.warn("no-effect", "checkpoint.best_metric_key",
              fmt::format("no validation set is named '{}', so no checkpoint becomes LOWEST_VAL", name),
              sets.empty() ? "add validation_dataset, which is named default"
                           : fmt::format("the validation sets are {}", join(sets)));
}

}  // namespace

void warn_of_idle_sections(const config::Recipe& recipe, const mesh::MeshSizes& sizes, Located& report) {
  if (sizes.pp == 1 && recipe.distributed->pipeline())
    report.warn("no-effect", "distributed.pipeline", "the pipeline section has no effect with pp_size 1",
                "set distributed.pp_size to 2 or more");
  if (sizes.pp == 1 && recipe.model_parallel->virtual_pipeline_model_parallel_size().value_or(1) != 1)
    report.refuse("bad-value", "model_parallel.virtual_pipeline_model_parallel_size",
                  "virtual pipeline stages need pipeline parallelism",
                  "set distributed.pp_size to 2 or more, or remove the key");
  if (sizes.pp == 1 && recipe.model_parallel->delay_wgrad_compute())
    report.warn("no-effect", "model_parallel.delay_wgrad_compute",
                "delay_wgrad_compute has no effect with pp_size 1: no stage waits for an input gradient",
                "remove it, or set distributed.pp_size to 2 or more");
  if (sizes.ep == 1 && recipe.distributed->moe())
    report.warn("no-effect", "distributed.moe", "the moe section has no effect with ep_size 1",
                "set distributed.ep_size to 2 or more");
  warn_of_idle_ranking(recipe, report);
}

void warn_of_gpu_estimates(const config::HardwareConfig& hardware, Located& report) {
  const auto warn = [&](const char* key) {
    report.warn("no-effect", key, "estimates for a CPU assume this program's own kernels and communication",
                "remove the key, or plan for a GPU (device: cuda, hardware.profile)");
  };
  if (hardware.stack()) warn("hardware.stack");
  if (hardware.dispatcher()) warn("hardware.dispatcher");
}

}  // namespace automodel::plan
