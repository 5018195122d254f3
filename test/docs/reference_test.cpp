// Pages that repeat what the declarations in lib/config say are current.
#include "config/reference.h"

#include <catch2/catch.hpp>

#include "docs/pages.h"

namespace automodel {

TEST_CASE("docs/recipe-reference.md is what the program prints", "[docs]") {
  const bool current = test::read_file(test::repository() / "docs/recipe-reference.md") == config::recipe_reference();
  if (!current) FAIL("write it anew: automodel schema --markdown > docs/recipe-reference.md");
}

}  // namespace automodel
