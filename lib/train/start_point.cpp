#include "train/start_point.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/find_file.h"
#include "checkpoint/agreement.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/root_folder.h"
#include "config/reader.h"
#include "ops/scalar_type.h"
#include "train/initial_values.h"
#include "train/run_identity.h"
#include "train/weight_files.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

/// Advice about a damaged checkpoint: to use the one before it, if there is one.
std::string advice(const fs::path& damaged) {
  fs::path before;
  for (const auto& each : checkpoint::seen_checkpoints(damaged.parent_path())) {
    if (each.path.filename() == damaged.filename()) break;
    if (each.complete) before = each.path;
  }
  if (before.empty()) return "there is no older complete checkpoint beside it; remove it to start a new run";
  return fmt::format("the complete one before it is '{0}': go on from it with --checkpoint.restore_from {0}",
                     before.native());
}

/// StartPlaces with folders as rank 0 sees them, and copies in memory on all hosts.
class RunPlaces : public StartPlaces {
 public:
  RunPlaces(const StartWish& wish, comm::World& world, comm::Communicator& ranks, checkpoint::MemoryCopies* copies,
            StartPoint& start)
      : wish_(wish), world_(world), ranks_(ranks), copies_(copies), start_(start) {}

  fs::path newest(const fs::path& folder) override {
    return of_first([&] { return checkpoint::newest_checkpoint(folder); });
  }
  bool complete(const fs::path& folder) override {
    const auto found =
        of_first([&] { return checkpoint::is_there(folder / checkpoint::kManifestName) ? folder : fs::path(); });
    return !found.empty();
  }
  fs::path incomplete(const fs::path& root) override {
    return of_first([&] {
      const auto all = checkpoint::list_checkpoints(root);
      const auto broken = std::find_if(all.rbegin(), all.rend(), [](const auto& each) { return !each.complete; });
      return broken == all.rend() ? fs::path() : broken->path;
    });
  }
  fs::path latest(const fs::path& root) override {
    return of_first([&] {
      const auto target = checkpoint::link_target(root, checkpoint::kLatest);
      return target.empty() ? fs::path() : root / target;
    });
  }
  fs::path newer_copy(std::int64_t step) override {
    if (copies_ == nullptr) return {};
    const auto say = [&](const std::string& why) {
      start_.lines.push_back("resume    " + why);
      start_.events.push_back(
          {.event = "warning", .step = step + 1, .message = why, .fields = {{"id", "memory-copy"}}});
    };
    return copies_->find(wish_.run, step, say).value_or(fs::path());
  }
  /// Each rank reads its share of the files.
  void verify(const fs::path& path) override {
    checkpoint::together(ranks_, [&] {
      Diagnostics problems;
      const auto manifest = checkpoint::read_manifest(path, problems);
      if (manifest && ranks_.rank() == 0) checkpoint::check_sizes(path, *manifest, problems);
      if (manifest && problems.empty())
        for (auto i = static_cast<std::size_t>(ranks_.rank()); i < manifest->files.size();
             i += static_cast<std::size_t>(ranks_.size()))
          checkpoint::check_content(path, manifest->files[i], problems);
      if (problems.empty()) return;
      problems.front().help = advice(path);
      throw Error(ExitCode::kCheckpoint, std::move(problems));
    });
  }
  std::optional<checkpoint::RunIdentity> saved_by(const fs::path& path) override {
    Diagnostics ignored;
    const auto manifest = checkpoint::read_manifest(path, ignored);  // verified before
    return manifest ? manifest->run : std::nullopt;
  }

 private:
  fs::path of_first(const std::function<fs::path()>& find) {
    std::string found;
    checkpoint::together(ranks_, [&] {
      if (ranks_.rank() == 0) found = find().native();
    });
    return world_.broadcast_text(found);
  }

  const StartWish& wish_;
  comm::World& world_;
  comm::Communicator& ranks_;
  checkpoint::MemoryCopies* copies_;
  StartPoint& start_;
};

StartWish wish_of(const Setup& setup, const fs::path& rollback) {
  const auto& section = setup.recipe().checkpoint();
  StartWish out{.root = section.checkpoint_dir(),
                .resumes = section.enabled() && section.resume() == config::ResumeMode::kAuto,
                .pretrained = setup.plan.model->load_weights,
                .restore_from = section.restore_from(),
                .rollback = rollback,
                .run = identity_of(setup)};
  if (out.restore_from) {
    out.named.push_back(out.root / *out.restore_from);
    if (const auto beside = find_beside(*out.restore_from, setup.loaded.folder())) out.named.push_back(*beside);
  }
  return out;
}

/// choose_start(), adding the recipe location of the key that an error names.
StartChoice chosen(const StartWish& wish, RunPlaces& places, const config::LoadedRecipe& loaded) {
  try {
    return choose_start(wish, places);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadInput) throw;
    auto problems = error.problems();
    for (auto& problem : problems)
      if (problem.where.file.empty()) problem.where = loaded.origins.nearest(problem.key);
    throw Error(error.code(), std::move(problems));
  }
}

/// The learning-rate schedule of the recipe, or the one saved in the checkpoint, as lr_scheduler says.
plan::LrSchedule rates_of(const Setup& setup, const StartPoint& start, std::vector<std::string>& lines) {
  if (start.state.lr_schedule.empty()) return *setup.rates;
  Diagnostics problems;
  config::Origins origins;
  std::vector<config::IgnoredKey> ignored;
  std::vector<config::IgnoredKey> unsupported;
  config::Reader reader(problems, origins, ignored, unsupported);
  plan::LrSettings saved;
  const std::string file = (start.checkpoint / checkpoint::kStateName).native();
  reader.read(config::parse_yaml(start.state.lr_schedule, file, problems), "lr_schedule", saved);
  if (!problems.empty()) throw Error(ExitCode::kCheckpoint, std::move(problems));
  const auto& recipe = setup.rates->settings();
  const auto settings = plan::resumed_settings(setup.recipe().lr_scheduler(), recipe, saved, problems);
  agree(setup.world, setup.loaded, std::move(problems));
  if (const auto changes = plan::rate_changes(settings, saved); !changes.empty())
    lines.push_back(fmt::format("resume    rates are the recipe's: {}", fmt::join(changes, ", ")));
  else if (const auto left = plan::rate_changes(saved, recipe, "the recipe's"); !left.empty())
    lines.push_back(
        fmt::format("resume    rates are the checkpoint's, not the recipe's: {}; "
                    "lr_scheduler.override_opt_param_scheduler: true takes the recipe's",
                    fmt::join(left, ", ")));
  return plan::LrSchedule(settings);
}

/// Frozen weights as values of the type in which checkpoints store them. Only of trained weights does a checkpoint have
/// masters: one frozen in a finer type (torch_dtype bfloat16, computation in float32) would resume with other values.
parallel::WeightSource frozen_as_stored(const plan::TrainingPlan& plan, parallel::WeightSource source) {
  const auto stored = scalar_type(plan.types.stored);
  return [stored, source = std::move(source)](const model::Weight& weight, std::int64_t first, const at::Tensor& out) {
    source(weight, first, out);
    if (!weight.info.frozen || weight.info.part == arch::Part::kRouterTable) return;
    if (c10::promoteTypes(stored, out.scalar_type()) != stored) out.copy_(out.to(stored));
  };
}

/// The weights of a checkpoint, or the base weights with adapters on top.
parallel::WeightSource weights_of(const Setup& setup, StartPoint& start) {
  const auto& plan = setup.plan;
  if (start.saved && !plan.adapters) return start.saved->weights();
  const auto initial = initial_values(plan);
  auto base = initial;
  if (const auto& model = *plan.model; model.load_weights) {
    Diagnostics problems;
    auto files =
        WeightFiles::open(model.folder, model, setup.world.rank() == 0, problems, checkpoint::WantedWeights::kBase);
    agree(setup.world, setup.loaded, std::move(problems));
    const auto& head = model.layout.head_parameter.name;
    const bool fresh = model.layout.head_tied_to.empty() && !files->has(head);
    start.lines.push_back(
        fmt::format("weights   {}{}", model.folder.native(),
                    fresh ? fmt::format(", but {} is drawn from seed {}", head, plan.weights.seed) : ""));
    base = stored_values(std::move(files), fresh ? initial : parallel::WeightSource());
  } else {
    start.lines.push_back(plan.weights.zero ? "weights   zero, but for those of adapters"
                                            : fmt::format("weights   drawn from seed {}", plan.weights.seed));
  }
  base = frozen_as_stored(plan, std::move(base));
  if (!plan.adapters) return base;
  return adapters_over(base, start.saved ? start.saved->weights() : magnitudes_over(plan, base, initial));
}

}  // namespace

StartPoint find_start(const Setup& setup, checkpoint::MemoryCopies* copies, const fs::path& rollback) {
  StartPoint out{.first_step = setup.steps->first_step(), .rates = *setup.rates};
  out.ranks = setup.world.group(setup.world.control().ranks(), "restore", comm::kHostTensors);
  const auto wish = wish_of(setup, rollback);
  RunPlaces places(wish, setup.world, *out.ranks, copies, out);
  const auto choice = chosen(wish, places, setup.loaded);
  out.run = wish.run;
  out.kind = choice.kind;
  out.checkpoint = choice.checkpoint;
  if (copies != nullptr)
    copies->keep_only(out.kind == StartKind::kMemoryCopy ? out.checkpoint.filename().native() : "");
  if (!out.checkpoint.empty()) {
    out.saved = SavedRun::open(setup, *out.ranks, out.checkpoint);
    out.state = out.saved->state();
    out.first_step = out.state.step + 1;
    out.lines.push_back(fmt::format("resume    {}{}: step {} is done",
                                    out.kind == StartKind::kMemoryCopy ? "copy in memory " : "",
                                    out.checkpoint.native(), out.state.step));
    auto warnings = choice.differences;
    std::ranges::copy(out.saved->warnings(), std::back_inserter(warnings));
    for (const auto& warning : warnings) {
      out.lines.push_back("resume    " + warning);
      out.events.push_back(
          {.event = "warning", .step = out.first_step, .message = warning, .fields = {{"id", "resume"}}});
    }
  }
  out.weights = weights_of(setup, out);
  if (const auto& teacher = setup.plan.teacher)
    out.lines.push_back(teacher->model->load_weights
                            ? fmt::format("teacher   weights {}", teacher->model->folder.native())
                            : fmt::format("teacher   weights drawn from seed {}", teacher->weights.seed));
  out.rates = rates_of(setup, out, out.lines);
  return out;
}

void StartPoint::restore(Trainer& trainer) {
  checkpoint::together(*ranks, [&] {
    if (saved) saved->restore_optimizer(trainer.runtime());
  });
  if (auto* scaler = trainer.scaler(); scaler != nullptr && state.loss_scale)
    scaler->restore({static_cast<float>(state.loss_scale->scale), static_cast<int>(state.loss_scale->growth_steps),
                     static_cast<int>(state.loss_scale->hysteresis)});
  if (saved) trainer.bad_steps().restore(state.recent_losses);
  weights = nullptr;
  saved.reset();
}

}  // namespace automodel::train
