// Shell completion: commands, their options and recipe keys.
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

/// Code for bash, zsh or fish. After a command that takes a recipe, keys complete as "--key" and as "key=".
std::string completion_script(const std::string& shell, const std::vector<CompletedCommand>& commands,
                              const std::vector<std::string>& keys);

}  // namespace automodel::launch
