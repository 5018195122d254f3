// Collects a plan's problems with the location where the recipe sets the key concerned.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/problems.h"
#include "config/recipe.h"

namespace automodel::plan {

/// Problems of a plan, and the settings that can be planned but not trained.
class Located : public Problems {
 public:
  explicit Located(const config::LoadedRecipe& recipe) : Problems(recipe.origins) {}

  using Problems::refuse;
  using Problems::warn;
  void refuse(ProblemId id, std::string key, std::string message, std::string help) {
    refuse(id, std::move(key)).says(std::move(message)).hint(std::move(help));
  }
  void warn(ProblemId id, std::string key, std::string message, std::string help) {
    warn(id, std::move(key)).says(std::move(message)).hint(std::move(help));
  }
  /// For a valid recipe that cannot run, for example because the model cannot be divided that way.
  void refuse_plan(ProblemId id, std::string key, std::string message, std::string help) {
    refuse(id, std::move(key)).says(std::move(message)).hint(std::move(help)).exits(ExitCode::kRefused);
  }
  /// For a setting that can be planned but not trained: `refusal` for a run, otherwise listed with its reason.
  void plan_only(bool training, std::string reason, const Diagnostic& refusal) {
    if (!training) return unsupported_.push_back({refusal.key, std::move(reason), {}});
    refuse(refusal.id, refusal.key, refusal.message, refusal.help);
  }
  /// Settings passed to plan_only().
  const std::vector<config::IgnoredKey>& unsupported() const { return unsupported_; }

 private:
  std::vector<config::IgnoredKey> unsupported_ = {};
};

}  // namespace automodel::plan
