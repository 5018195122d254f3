#include "config/freeze_config.h"

#include <fmt/format.h>

namespace automodel::config {

Diagnostics check(const FreezeConfig& config) {
  Diagnostics problems;
  const auto look = [&](const char* key, const std::vector<ModuleSelector>& selectors) {
    for (std::size_t i = 0; i < selectors.size(); ++i) {
      const bool path = selectors[i].path() && !selectors[i].path()->empty();
      const bool glob = selectors[i].glob() && !selectors[i].glob()->empty();
      if (path == glob)
        problems.add("bad-value", fmt::format("{}[{}]", key, i))
            .says("an entry has either a path or a glob")
            .hint("for example {path: model.embed_tokens} or {glob: '*.layers.0.*'}");
    }
  };
  look("freeze_modules", config.freeze_modules());
  look("unfreeze_modules", config.unfreeze_modules());
  return problems;
}

}  // namespace automodel::config
