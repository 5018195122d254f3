#include "train/resume.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/find_file.h"
#include "checkpoint/agreement.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/root_folder.h"
#include "ops/graph.h"
#include "train/run_identity.h"
#include "train/snapshot.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(std::string id, std::string message, std::string help) {
  throw Error(ExitCode::kCheckpoint,
              {std::move(id), std::move(message), std::move(help), {}, "checkpoint.restore_from"});
}

[[noreturn]] void refuse(Diagnostics problems) {
  throw Error(ExitCode::kCheckpoint, std::move(problems));
}

/// The folder that the recipe means; empty: start anew.
fs::path choose(const Setup& setup) {
  const auto& section = setup.recipe().checkpoint();
  const fs::path root = section.checkpoint_dir();
  const auto& from = section.restore_from();
  if (!from)
    return section.enabled() && section.resume() == config::ResumeMode::kAuto ? checkpoint::newest_checkpoint(root)
                                                                              : fs::path();
  if (*from == checkpoint::kLatest) {
    const auto target = checkpoint::link_target(root, checkpoint::kLatest);
    if (!target.empty()) return root / target;
    if (auto newest = checkpoint::newest_checkpoint(root); !newest.empty()) return newest;
    refuse("checkpoint-missing", fmt::format("'{}' has no checkpoint to restore LATEST from", root.native()),
           "leave restore_from out to start anew where there is none");
  }
  std::error_code error;
  for (const auto& path : {root / *from, find_beside(*from, setup.loaded.folder()).value_or(fs::path())}) {
    if (path.empty() || !fs::is_directory(path, error)) continue;
    if (fs::exists(path / checkpoint::kManifestName, error)) return path;
    if (auto newest = checkpoint::newest_checkpoint(path); !newest.empty()) return newest;
  }
  refuse("checkpoint-missing",
         fmt::format("'{}' is no complete checkpoint (it has no {})", *from, checkpoint::kManifestName),
         "give a folder like epoch_0_step_99, LATEST, or nothing for the newest one");
}

/// What to do about a damaged checkpoint: the one before it, where there is one.
std::string advice(const fs::path& damaged) {
  fs::path before;
  for (const auto& each : checkpoint::list_checkpoints(damaged.parent_path())) {
    if (each.path.filename() == damaged.filename()) break;
    if (each.complete) before = each.path;
  }
  if (before.empty()) return "no older complete checkpoint stands beside it; remove it to start anew";
  return fmt::format("the complete one before it is '{0}': go on from it with --checkpoint.restore_from {0}",
                     before.native());
}

void verify(const fs::path& path, comm::Communicator& group) {
  checkpoint::together(group, [&] {
    Diagnostics problems;
    const auto manifest = checkpoint::read_manifest(path, problems);
    if (manifest && group.rank() == 0) checkpoint::check_sizes(path, *manifest, problems);
    if (manifest && problems.empty())
      for (auto i = static_cast<std::size_t>(group.rank()); i < manifest->files.size();
           i += static_cast<std::size_t>(group.size()))
        checkpoint::check_content(path, manifest->files[i], problems);
    if (problems.empty()) return;
    problems.front().help = advice(path);
    refuse(std::move(problems));
  });
}

/// A run must not go on from what another one left in the folder: by default all use `checkpoints/`.
/// Returns what differs where the recipe names the checkpoint all the same.
std::vector<std::string> check_identity(const fs::path& path, const checkpoint::RunIdentity& run, const Setup& setup) {
  Diagnostics ignored, problems;
  const auto manifest = checkpoint::read_manifest(path, ignored);  // verified before
  if (!manifest || !manifest->run) return {};
  auto others = checkpoint::differences(run, *manifest->run);
  if (!others.empty() && !setup.recipe().checkpoint->restore_from())
    problems.push_back(
        {"checkpoint-of-another-run",
         fmt::format("'{}' was saved by another run: {}", path.native(), fmt::join(others, "; ")),
         "another checkpoint.checkpoint_dir keeps runs apart; --checkpoint.restore_from LATEST goes on from it all the "
         "same; --checkpoint.resume never starts anew",
         {},
         "checkpoint.checkpoint_dir"});
  agree(setup.world, setup.loaded, std::move(problems));
  return others;
}

constexpr std::size_t kMostListed = 12;

/// What of the recipe is not as it was, as one line.
std::string changes_of(const checkpoint::RunState& state, const Setup& setup) {
  auto changed = changed_keys(recorded_recipe(setup.loaded), state.resolved);
  const auto more = changed.size() - std::min(changed.size(), kMostListed);
  changed.resize(changed.size() - more);
  if (more > 0) changed.push_back(fmt::format("and {} more", more));
  return fmt::format("{}", fmt::join(changed, ", "));
}

std::vector<std::string> differences(const checkpoint::RunState& state, const Setup& setup) {
  std::vector<std::string> out;
  if (const auto changed = changes_of(state, setup); !changed.empty()) out.push_back("changed: " + changed);
  if (state.seed != setup.seed())
    out.push_back(fmt::format("the seed is {} here and was {}: from here on the data comes in another order",
                              setup.seed(), state.seed));
  if (state.global_batch_size != setup.plan.batch.global)
    out.push_back(
        fmt::format("global_batch_size is {} here and was {}: steps are counted on from {}, epochs and data "
                    "by the new size",
                    setup.plan.batch.global, state.global_batch_size, state.step + 1));
  return out;
}

}  // namespace

std::unique_ptr<Resume> Resume::find(const Setup& setup, const checkpoint::RunIdentity& run, comm::Communicator& group,
                                     const fs::path& from) {
  std::string chosen;
  checkpoint::together(group, [&] {
    if (group.rank() == 0) chosen = from.empty() ? choose(setup).native() : from.native();
  });
  chosen = setup.world.broadcast_text(chosen);
  if (chosen.empty()) return nullptr;
  verify(chosen, group);
  return open(setup, run, group, chosen);
}

std::unique_ptr<Resume> Resume::from_memory(const Setup& setup, const checkpoint::RunIdentity& run,
                                            comm::Communicator& group, const fs::path& copy) {
  auto out = open(setup, run, group, copy);
  out->in_memory_ = true;
  return out;
}

void Resume::close() {
  model_.reset();
  adapters_.reset();
  optimizer_.reset();
}

std::unique_ptr<Resume> Resume::open(const Setup& setup, const checkpoint::RunIdentity& run, comm::Communicator& group,
                                     const fs::path& path) {
  std::unique_ptr<Resume> out(new Resume);
  out->path_ = path;
  auto others = check_identity(path, run, setup);
  checkpoint::together(group, [&] {
    Diagnostics problems;
    if (auto state = checkpoint::read_run_state(out->path_, problems)) out->state_ = std::move(*state);
    if (setup.plan.adapters)
      out->adapters_ = AdapterFiles::open(out->path_ / "model", *setup.plan.adapters, problems);
    else
      out->model_ = WeightFiles::open(out->path_ / "model", *setup.plan.model, false, problems);
    if (auto folder = checkpoint::TensorFolder::open(out->path_ / "optim", kOptimizerStem, problems))
      out->optimizer_ = std::make_shared<const checkpoint::TensorFolder>(std::move(*folder));
    if (!problems.empty()) {
      problems.front().help += "; a run resumes in its checkpoint_dir: choose another one for another model";
      refuse(std::move(problems));
    }
  });
  out->warnings_ = std::move(others);
  for (auto& each : differences(out->state_, setup)) out->warnings_.push_back(std::move(each));
  if (out->adapters_ &&
      out->adapters_->config().scale(out->adapters_->config().rank) != setup.plan.adapters->spec.scale())
    out->warnings_.push_back(fmt::format("adapters are scaled by {} here and were by {} (peft.alpha / peft.dim)",
                                         setup.plan.adapters->spec.scale(),
                                         out->adapters_->config().scale(out->adapters_->config().rank)));
  return out;
}

parallel::WeightSource Resume::weights() const {
  return [model = model_, adapters = adapters_, optimizer = optimizer_](const model::Weight& weight, std::int64_t first,
                                                                        const at::Tensor& out) {
    const auto& name = weight.info.tied_to.empty() ? weight.info.fqn : weight.info.tied_to;
    if (const auto master = optimizer->find(state_name(name, kMasterState)))
      read_elements(master, 0, weight, first, out);
    else if (adapters)
      adapters->read(weight, first, out);
    else
      model->read(weight, first, out);
  };
}

void Resume::restore_optimizer(Runtime& runtime) const {
  auto& optimizer = runtime.optimizer();
  std::map<std::string, const model::Weight*> weights;
  for (auto* stage : runtime.stages())
    for (const auto& weight : stage->model().weights().all()) weights[weight->info.fqn] = weight.get();
  for (std::size_t i = 0; i < optimizer.targets().size(); ++i)
    for (const auto& state : optimizer.states(i))
      for (const auto& range : optimizer.targets()[i].ranges) {
        if (!range.trained || !state.belongs_to(range.matrix >= 0)) continue;
        const auto& weight = *weights.at(range.name);
        const auto& name = weight.info.tied_to.empty() ? range.name : weight.info.tied_to;
        const auto stored = optimizer_->find(state_name(name, state.name));
        const std::vector<std::int64_t>* shape = stored ? &stored.info->shape : nullptr;
        if (shape == nullptr || *shape != weight.full)
          refuse("optimizer-differs",
                 fmt::format("'{}' has no {} of {} of this shape", (path_ / "optim").native(), state.name, name),
                 "the checkpoint was saved by a run with another optimizer; take the one that it was saved with, or "
                 "start from its weights: model.pretrained_model_name_or_path");
        read_elements(stored, 0, weight, range.first, state.tensor.narrow(0, range.offset - state.first, range.length));
      }
  optimizer.set_steps(state_.optimizer_steps);
}

}  // namespace automodel::train
