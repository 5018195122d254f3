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

TEST_CASE("a step is in the records and in TensorBoard's events") {
  const test::TemporaryFolder folder;
  const auto loaded =
      config::read_recipe("device: cpu\nlogging: {jsonl: true, tensorboard: true}\ncheckpoint: {checkpoint_dir: " +
                              (folder.path() / "run").native() + "}\n",
                          "r.yaml", {}, {});
  {
    Reports reports(loaded.recipe, true, false, 0, 2, nullptr);
    reports.step({.step = 1, .loss = 2.5});
    reports.validation({.step = 1, .val_loss = 3}, "default");
    reports.validation({.step = 1, .val_loss = 4}, "small");
    reports.end(ExitCode::kOk);
  }
  CHECK(folder.read("run/training.jsonl").find("\"loss\": 2.5") != std::string::npos);
  CHECK(folder.read("run/validation_small.jsonl").find("\"val_loss\": 4") != std::string::npos);
  std::string events;
  for (const auto& each : fs::directory_iterator(folder.path() / "run"))
    if (each.path().filename().native().starts_with("events.out.tfevents."))
      events += folder.read("run/" + each.path().filename().native());
  for (const char* tag : {"train/loss", "validation/val_loss", "validation_small/val_loss"}) {
    INFO(tag);
    CHECK(events.find(tag) != std::string::npos);
  }
}

}  // namespace
}  // namespace automodel::train
