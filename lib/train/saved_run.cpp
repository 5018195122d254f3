#include "train/saved_run.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "checkpoint/agreement.h"
#include "ops/graph.h"
#include "train/run_identity.h"
#include "train/snapshot.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostListed = 12;

/// The changed keys of the recipe, as one line.
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
  if (state.optimizer.empty())
    out.push_back("the checkpoint has no states of an optimizer: it begins anew, with moments of zero");
  if (state.global_batch_size > 0 && state.global_batch_size != setup.plan.batch.global)
    out.push_back(
        fmt::format("global_batch_size is {} here and was {}: steps are counted on from {}, epochs and data "
                    "by the new size",
                    setup.plan.batch.global, state.global_batch_size, state.step + 1));
  return out;
}

}  // namespace

std::unique_ptr<SavedRun> SavedRun::open(const Setup& setup, comm::Communicator& group, const fs::path& path) {
  std::unique_ptr<SavedRun> out(new SavedRun);
  out->path_ = path;
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
      throw Error(ExitCode::kCheckpoint, std::move(problems));
    }
  });
  out->warnings_ = differences(out->state_, setup);
  if (out->adapters_ &&
      out->adapters_->config().scale(out->adapters_->config().rank) != setup.plan.adapters->spec.scale())
    out->warnings_.push_back(fmt::format("adapters are scaled by {} here and were by {} (peft.alpha / peft.dim)",
                                         setup.plan.adapters->spec.scale(),
                                         out->adapters_->config().scale(out->adapters_->config().rank)));
  return out;
}

parallel::WeightSource SavedRun::weights() const {
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

void SavedRun::restore_optimizer(Runtime& runtime) const {
  if (state_.optimizer.empty()) return;
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
          throw Error(
              Diagnostic{"optimizer-differs"}
                  .says("'{}' has no {} of {} of this shape", (path_ / "optim").native(), state.name, name)
                  .hint(
                      "the checkpoint was saved by a run with another optimizer; take the one that it was saved with, "
                      "or start from its weights: model.pretrained_model_name_or_path")
                  .of("checkpoint.restore_from"));
        read_elements(stored, 0, weight, range.first, state.tensor.narrow(0, range.offset - state.first, range.length));
      }
  optimizer.set_steps(state_.optimizer_steps);
}

}  // namespace automodel::train
