#include "train/saved_runs.h"

#include <cmath>

#include <fmt/format.h>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/root_folder.h"
#include "parity/parity.h"
#include "rank_suite.h"
#include "train/checkpointing.h"
#include "train/early_stopping.h"
#include "train/feature_cache.h"
#include "train/trainer.h"

namespace automodel::test {

std::vector<double> train_to(comm::World& world, const std::string& text, std::int64_t end, bool save_all) {
  const auto loaded = load_recipe(text);
  const train::Setup setup(loaded, world);
  auto copies = train::prepare_saving(setup);
  auto start = train::find_start(setup, copies.get());
  train::Runtime runtime(setup.plan, world, start.weights,
                         {.features = train::cache_features(setup, start.weights).store});
  train::Trainer trainer(runtime, start.rates);
  trainer.bad_steps() = train::BadStepRule(loaded.recipe.fault_tolerance());
  start.restore(trainer);
  const train::EarlyStopping stopping(loaded.recipe.step_scheduler(), start.state.validations);
  train::Checkpointing checkpoints(setup, trainer, stopping, start, std::move(copies));
  std::vector<double> losses;
  for (auto step = start.first_step; step < end; ++step) {
    auto plan = setup.steps->plan(step);
    const auto result = trainer.step(step, setup.loader->load(plan.epoch, plan.step_in_epoch), false);
    losses.push_back(result.loss);
    plan.checkpoint = save_all || step + 1 == end;
    plan.last = step + 1 == end;
    checkpoints.after_step(plan, result.loss, std::nullopt);
  }
  checkpoints.finish();
  return losses;
}

std::string saved_tensors(const fs::path& root) {
  Diagnostics problems;
  const auto manifest = checkpoint::read_manifest(checkpoint::newest_checkpoint(root), problems);
  if (!manifest) return "no manifest: " + to_text(problems);
  std::string out;
  for (const auto& entry : manifest->files)
    if (entry.file.ends_with(".safetensors"))
      out += fmt::format("{} {} {:08x}\n", entry.file, entry.size, entry.checksum);
  return out;
}

checkpoint::RunState saved_state(const fs::path& root) {
  Diagnostics problems;
  auto state = checkpoint::read_run_state(checkpoint::newest_checkpoint(root), problems);
  if (!state) rank_check_failed(__FILE__, __LINE__, "no state: " + to_text(problems));
  return std::move(*state);
}

bool near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  if (a.size() != b.size() || a.empty()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= tolerance * std::abs(b[i]))) return false;
  return true;
}

SharedFolder::SharedFolder(comm::World& world) : world_(world) {
  if (world.rank() == 0) folder_ = std::make_unique<TemporaryFolder>();
  path_ = world.broadcast_text(folder_ ? folder_->path().native() : "");
}

void SharedFolder::copy(const std::string& from, const std::string& to) const {
  world_.control().barrier()->wait();
  if (world_.rank() == 0)
    fs::copy(path_ / from, path_ / to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  world_.control().barrier()->wait();
}

}  // namespace automodel::test
