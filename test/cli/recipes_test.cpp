// Every recipe in the repository can be planned.
#include <filesystem>

#include <catch2/catch.hpp>

#include "cli/program.h"

namespace automodel {
namespace {

TEST_CASE("every recipe in the repository can be planned and fits its hardware", "[cli][recipes]") {
  const test::TemporaryFolder folder;
  int count = 0;
  const std::string recipes = std::string(AUTOMODEL_SOURCE_DIR) + "/recipes";
  const auto plan_all = [&](const std::string& place, const std::string& words) {
    for (const auto& entry : std::filesystem::directory_iterator(place)) {
      if (entry.path().extension() != ".yaml") continue;
      INFO(entry.path());
      const auto outcome =
          test::run_program(folder, "plan " + entry.path().string() + " --require-fit --no-files" + words);
      INFO(outcome.err);
      CHECK(outcome.code == 0);
      ++count;
    }
  };
  plan_all(recipes, "");
  plan_all(recipes + "/gpu", " --hardware.profile h100");  // timed by scripts/gpu_check.sh on one 80 GB GPU
  CHECK(count >= 9);
}

}  // namespace
}  // namespace automodel
