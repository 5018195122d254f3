// What reading another trainer's configuration found besides its settings: keys without effect, keys that no recipe of
// ours can express, values that the files do not hold, and why a configuration is refused.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::foreign {

struct Finding {
  std::string key;  ///< as in the file, often with its value: "optimizer: adamw_bnb_8bit"
  std::string reason;
  bool unknown = false;    ///< not among the trainer's keys that are known here
  std::string meant = {};  ///< of an unknown key, one that the trainer reads and that it may be a misspelling of
};

/// A value that a plan needs and the files do not hold.
struct Missing {
  std::string key;
  std::string reason;
  std::string option;  ///< that gives it: "--vocab-size N"
};

struct Findings {
  std::vector<Finding> ignored = {};        ///< no effect on a plan
  std::vector<Finding> not_expressed = {};  ///< changes the computation, and a recipe cannot say it
  std::vector<Finding> notes = {};          ///< expressed, but not as a reader of the file might expect
  std::vector<Missing> missing = {};
  std::optional<Finding> refused = {};  ///< the first reason why a plan would mislead
  Diagnostics problems = {};            ///< of the files themselves

  void ignore(std::string key, std::string reason) { ignored.push_back({std::move(key), std::move(reason)}); }
  void cannot(std::string key, std::string reason) { not_expressed.push_back({std::move(key), std::move(reason)}); }
  void note(std::string key, std::string reason) { notes.push_back({std::move(key), std::move(reason)}); }
  void ask(std::string key, std::string reason, std::string option) {
    missing.push_back({std::move(key), std::move(reason), std::move(option)});
  }
  void refuse(std::string key, std::string reason) {
    if (!refused) refused = Finding{std::move(key), std::move(reason)};
  }
};

}  // namespace automodel::foreign
