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

  /// For a setting that can be planned but not trained: `refusal` for a run, otherwise listed with its reason.
  void plan_only(bool training, std::string reason, const Diagnostic& refusal) {
    if (!training) return unsupported_.push_back({refusal.key, std::move(reason), {}});
    refuse(refusal.id, refusal.key).says(refusal.message).hint(refusal.help);
  }
  /// Takes what another report of the same recipe has gathered.
  void take(Located other) {
    refuse_all(std::move(other.problems()));
    warn_all(std::move(other.warnings()));
    unsupported_.insert(unsupported_.end(), other.unsupported_.begin(), other.unsupported_.end());
  }
  /// Settings passed to plan_only().
  const std::vector<config::IgnoredKey>& unsupported() const { return unsupported_; }

 private:
  std::vector<config::IgnoredKey> unsupported_ = {};
};

}  // namespace automodel::plan
