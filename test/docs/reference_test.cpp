// Pages generated from the declarations in lib/config are current.
#include "config/reference.h"

#include <algorithm>

#include <catch2/catch.hpp>

#include "config/recipe_change.h"
#include "docs/pages.h"

namespace automodel {

TEST_CASE("docs/recipe-reference.md matches what the program prints", "[docs]") {
  const bool current = test::read_file(test::repository() / "docs/recipe-reference.md") == config::recipe_reference();
  if (!current) FAIL("write it anew: automodel schema --markdown > docs/recipe-reference.md");
}

TEST_CASE("the ignored keys of a recipe are listed with exactly the reasons of the table", "[docs]") {
  const std::string base =
      "model: {config: {model_type: llama}}\nlr_scheduler: {}\npeft: {dim: 4}\ngeneration: {}\nfreeze_config: {}\n"
      "neftune: {}\nfp8: {}\n";
  const auto rows = config::ignored_keys();
  int tried = 0;
  for (const auto& row : rows) {
    INFO(row.key << ": " << row.reason);
    CHECK_FALSE(row.reason.empty());
    if (!row.when.empty()) continue;
    if (row.key.find("[]") != std::string::npos || row.key.find("NAME") != std::string::npos) continue;
    std::vector<config::Override> overrides;
    if (!row.components.empty()) {
      const auto colon = row.components.front().find(": ");
      overrides.push_back({row.components.front().substr(0, colon), row.components.front().substr(colon + 2), "test"});
    }
    overrides.push_back({row.key, row.initial, "test"});
    const auto loaded = config::read_recipe(base, "recipe.yaml", overrides, {});
    int listed = 0;
    for (const auto& each : loaded.ignored)
      if (each.key == row.key && each.reason == row.reason) ++listed;
    CHECK(listed == 1);
    ++tried;
  }
  CHECK(tried > 100);
}

TEST_CASE("a value without effect is listed with the reason of the table", "[docs]") {
  const std::vector<config::Override> values = {{"checkpoint.model_save_format", "torch_save", "test"},
                                                {"validation_dataloader.batch_size", "7", "test"},
                                                {"dataloader.collate_fn", "a.function", "test"},
                                                {"validation_dataloader.collate_fn", "a.function", "test"}};
  REQUIRE(config::ignored_values().size() == values.size());
  for (const auto& value : values) {
    const auto loaded =
        config::read_recipe("model: {config: {model_type: llama}}\n", "recipe.yaml", std::vector{value}, {});
    REQUIRE(loaded.ignored.size() == 1);
    CHECK(loaded.ignored[0].key == value.key);
    const auto rows = config::ignored_keys();
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& each) { return each.key == value.key; });
    REQUIRE(row != rows.end());
    CHECK(loaded.ignored[0].reason == row->reason);
  }
}

}  // namespace automodel
