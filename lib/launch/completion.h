// Shell completion: commands, their options, recipe keys and their values.
#pragma once

#include <string>
#include <vector>

namespace automodel::launch {

/// An option or positional argument of a command.
struct CompletedOption {
  std::string name = {};  ///< "--json"; empty: a plain word
  std::string doc = {};
  std::vector<std::string> values = {};  ///< the allowed values, if there is a fixed set
  bool takes_value = false;              ///< followed by a value: one of `values`, else a file or a number
};
struct CompletedCommand {
  std::string name = {};
  std::string doc = {};
  bool takes_recipe = false;  ///< followed by a recipe and overrides
  std::vector<CompletedOption> options = {};
};

/// A recipe key with a fixed set of values.
struct CompletedKey {
  std::string name = {};  ///< "distributed.pipeline.pp_schedule"
  std::vector<std::string> values = {};
};

/// A completion script for bash, zsh or fish. After a command that takes a recipe, keys complete both as "--key" and as
/// "key=", followed by the key's values.
std::string completion_script(const std::string& shell, const std::vector<CompletedCommand>& commands,
                              const std::vector<std::string>& keys, const std::vector<CompletedKey>& values);

}  // namespace automodel::launch
