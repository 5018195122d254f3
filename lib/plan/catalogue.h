// Configurations of well-known models by their published names, for planning with models that are not on this machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::plan {

/// The config.json of a model in recipes/models, as JSON text; empty if the catalogue has no model of that name.
std::optional<std::string> find_in_catalogue(std::string_view name);
/// Every name, for suggestions and tests.
std::vector<std::string_view> catalogue_names();

}  // namespace automodel::plan
