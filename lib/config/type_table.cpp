// Instantiates the type tables of all recipe sections, once.
#include "config/type_table.h"

#include <cstdint>
#include <vector>

#include "config/generate_request.h"
#include "config/recipe.h"

namespace automodel::config {

Recipe::Recipe() = default;
Recipe::~Recipe() = default;
Recipe::Recipe(const Recipe&) = default;
Recipe::Recipe(Recipe&&) noexcept = default;
Recipe& Recipe::operator=(const Recipe&) = default;
Recipe& Recipe::operator=(Recipe&&) noexcept = default;

// These also instantiate the types of all fields. The last is needed by a type with its own reader.
template const TypeInfo& type_of<Recipe>();
template const TypeInfo& type_of<GenerateRequest>();
template const TypeInfo& type_of<std::vector<std::int64_t>>();

}  // namespace automodel::config
