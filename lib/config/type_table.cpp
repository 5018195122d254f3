// What the compiler makes of all sections of a recipe, once.
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

// With the types of all their fields; and what types that read themselves read.
template const TypeInfo& type_of<Recipe>();
template const TypeInfo& type_of<GenerateRequest>();
template const TypeInfo& type_of<std::vector<std::int64_t>>();

}  // namespace automodel::config
