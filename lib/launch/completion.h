// Shell completion: commands, their options, recipe keys and the values of these.
#pragma once

#include <string>
#include <vector>

namespace automodel::launch {

/// What the command line takes, to be completed.
struct CompletedOption {
  std::string name = {};  ///< "--json"; empty: a plain word
  std::string doc = {};
  std::vector<std::string> values = {};  ///< where it takes one of these
  bool takes_value = false;              ///< a value follows: one of `values`, else a file or a number
};
struct CompletedCommand {
  std::string name = {};
  std::string doc = {};
  bool takes_recipe = false;  ///< a recipe and overrides follow
  std::vector<CompletedOption> options = {};
};

/// A recipe key that takes one of these.
struct CompletedKey {
  std::string name = {};  ///< "distributed.pipeline.pp_schedule"
  std::vector<std::string> values = {};
};

/// Code for bash, zsh or fish. After a command that takes a recipe, keys complete as "--key" and as "key=", and what
/// follows them as one of the key's values.
std::string completion_script(const std::string& shell, const std::vector<CompletedCommand>& commands,
                              const std::vector<std::string>& keys, const std::vector<CompletedKey>& values);

}  // namespace automodel::launch
