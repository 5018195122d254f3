// What differs between two plans: keys of the recipes, decisions with what each changes, and memory and time.
#pragma once

#include <string>

#include "config/recipe.h"
#include "estimate/estimated_plan.h"

namespace automodel::report {

struct Planned {
  const config::LoadedRecipe& loaded;
  const estimate::EstimatedPlan& plan;
};

std::string diff_to_text(const Planned& before, const Planned& after);
/// {"automodel", "recipe", "other", "keys": [{key, before, after}], "decisions": [{decision, before, after, numbers,
/// time, memory}], "before": {memory, step, tokens_per_second}, "after": {...}}; bytes, seconds, null where unknown.
std::string diff_to_json(const Planned& before, const Planned& after);

}  // namespace automodel::report
