// Collects a plan's problems with the location where the recipe sets the key concerned.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/recipe.h"

namespace automodel::plan {

/// Problems and warnings of one recipe. Keys are dotted recipe keys.
class Located {
 public:
  explicit Located(const config::LoadedRecipe& recipe) : origins_(recipe.origins) {}

  void refuse(std::string id, std::string key, std::string message, std::string help) {
    place(problems_, {std::move(id), std::move(message), std::move(help), {}, std::move(key)});
  }
  /// For a valid recipe that cannot run, for example because the model cannot be divided that way.
  void refuse_plan(std::string id, std::string key, std::string message, std::string help) {
    ++refused_plans_;
    refuse(std::move(id), std::move(key), std::move(message), std::move(help));
  }
  /// For a setting that can be planned but not trained: `refusal` for a run, otherwise listed with its reason.
  void plan_only(bool training, std::string reason, Diagnostic refusal) {
    if (!training) return unsupported_.push_back({std::move(refusal.key), std::move(reason), {}});
    ++refused_plans_;
    place(problems_, std::move(refusal));
  }
  void warn(std::string id, std::string key, std::string message, std::string help) {
    place(warnings_, {std::move(id), std::move(message), std::move(help), {}, std::move(key)});
  }
  /// Adds problems whose keys are relative to `prefix`. A problem that already has a location (in a CSV file) keeps it.
  void refuse_all(Diagnostics list, const std::string& prefix = "") { place_all(problems_, std::move(list), prefix); }
  void warn_all(Diagnostics list, const std::string& prefix = "") { place_all(warnings_, std::move(list), prefix); }

  /// The exit code of a command that reports these problems.
  ExitCode exit() const {
    return problems_.empty()                    ? ExitCode::kOk
           : refused_plans_ == problems_.size() ? ExitCode::kRefused
                                                : ExitCode::kBadInput;
  }
  bool ok() const { return problems_.empty(); }
  Diagnostics& problems() { return problems_; }
  Diagnostics& warnings() { return warnings_; }
  /// Settings passed to plan_only().
  const std::vector<config::IgnoredKey>& unsupported() const { return unsupported_; }
  bool given(const std::string& key) const { return origins_.find(key) != nullptr; }

 private:
  void place(Diagnostics& list, Diagnostic problem) {
    if (problem.where.file.empty()) problem.where = origins_.nearest(problem.key);
    list.push_back(std::move(problem));
  }
  void place_all(Diagnostics& list, Diagnostics all, const std::string& prefix) {
    for (auto& problem : all) {
      problem.key = problem.key.empty() ? prefix : config::join_path(prefix, problem.key);
      place(list, std::move(problem));
    }
  }

  const config::Origins& origins_;
  Diagnostics problems_ = {};
  Diagnostics warnings_ = {};
  std::vector<config::IgnoredKey> unsupported_ = {};
  std::size_t refused_plans_ = 0;
};

}  // namespace automodel::plan
