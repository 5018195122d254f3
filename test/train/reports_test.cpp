#include "train/reports.h"

#include <filesystem>

#include "config/recipe.h"
#include "temporary_folder.h"
#include "torch_catch.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

TEST_CASE("ranks other than the first write no reports") {
  const test::TemporaryFolder folder;
  const auto before = fs::current_path();
  fs::current_path(folder.path());
  {
    const auto loaded = config::read_recipe("device: cpu\nlogging: {jsonl: true}\n", "r.yaml", {}, {});
    Reports reports(loaded.recipe, false, false, 0, 1, nullptr);
    reports.line("text");
    reports.step({});
    reports.validation({}, "default");
    reports.ranks({});
    reports.event({.event = "warning"});
    reports.end(ExitCode::kOk);
  }
  fs::current_path(before);
  CHECK(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace automodel::train
