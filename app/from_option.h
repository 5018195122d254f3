// `plan --from`: the recipe that another trainer's configuration amounts to.
#pragma once

#include <optional>

#include "config/recipe.h"
#include "options.h"

namespace CLI {
class App;
}

namespace automodel::app {

/// --from and the options that are about it.
void add_from_options(CLI::App& sub, Options& options);

/// The converted recipe, on which `plan` goes on as on any other.
struct FromRecipe {
  std::optional<int> exit = {};  ///< the command is done: problems were reported, or the recipe printed
  config::LoadedRecipe loaded = {};
  std::string json = {};     ///< the member `from` of plan --json
  std::string ignored = {};  ///< lines about keys of the files without effect on a plan
};

FromRecipe load_from(const Options& options);

/// Problems of a file given as a recipe that is another trainer's configuration: one, with the command to use.
/// Otherwise `problems` as they are.
Diagnostics name_trainer(const config::LoadedRecipe& loaded);

}  // namespace automodel::app
