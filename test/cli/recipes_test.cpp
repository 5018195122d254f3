// Every recipe of the repository can be planned; the small ones are verified.
#include <filesystem>

#include <catch2/catch.hpp>

#include "cli/program.h"

namespace automodel {
namespace {

TEST_CASE("every recipe of the repository is planned and fits its hardware", "[cli][recipes]") {
  const test::TemporaryFolder folder;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(AUTOMODEL_SOURCE_DIR) + "/recipes")) {
    if (entry.path().extension() != ".yaml") continue;
    INFO(entry.path());
    const auto outcome = test::run_program(folder, "plan " + entry.path().string() + " --require-fit --no-files");
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    ++count;
  }
  CHECK(count >= 6);
}

}  // namespace
}  // namespace automodel
