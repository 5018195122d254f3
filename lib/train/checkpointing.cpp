#include "train/checkpointing.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/find_file.h"
#include "base/version.h"
#include "checkpoint/agreement.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/root_folder.h"
#include "config/node.h"
#include "data/tokenizer.h"
#include "ops/scalar_type.h"
#include "train/companion_files.h"
#include "train/run_identity.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFewFiles = std::uint64_t{50} << 30;  // maximum file size, as in transformers 5
constexpr std::uint64_t kManyFiles = std::uint64_t{1} << 30;

/// The type of the model's files: the recipe's choice, else the type of computation.
at::ScalarType stored_type(const Setup& setup) {
  if (const auto& peft = setup.recipe().peft(); peft && peft->lora_dtype()) return scalar_type(*peft->lora_dtype());
  const auto& wanted = setup.recipe().model()->torch_dtype().dtype;
  return scalar_type(wanted ? *wanted : setup.plan.types.compute);
}

DType dtype_of(at::ScalarType type) {
  return *checkpoint::dtype_of(element_type(type));
}

/// The ids with which texts begin and end, for a model whose configuration the recipe holds: without them transformers
/// takes those of the family's first model, and never stops at the end of a text.
plan::TextEnds text_ends(const Setup& setup) {
  if (setup.world.rank() != 0 || !setup.plan.model->folder.empty()) return {};
  const auto text = data::text_choice(*setup.recipe().dataset());
  if (!text.has_text) return {};
  Diagnostics ignored;
  const auto tokenizer = data::open_tokenizer(text.tokenizer.value_or("bytes"), setup.loaded.folder(),
                                              "dataset.tokenizer", ignored, text.revision);
  return tokenizer ? plan::TextEnds{tokenizer->bos(), tokenizer->eos()} : plan::TextEnds{};
}

/// adapter_config.json. The base model is identified by its folder, or by the recipe's name for it if that is a name in
/// the Hugging Face cache.
std::string adapter_config_of(const Setup& setup) {
  const auto& model = *setup.plan.model;
  const auto& spec = setup.plan.adapters->spec;
  checkpoint::AdapterConfig out{
      .rank = spec.rank, .expert_rank = spec.expert_rank, .alpha = spec.alpha, .dropout = spec.dropout};
  if (model.load_weights) {
    const auto path = find_beside(model.name, setup.loaded.folder());
    std::error_code error;
    out.base_model = !path ? model.name : fs::canonical(model.folder, error).native();
  }
  out.transposed = spec.transposed;
  out.magnitudes = spec.magnitudes;
  out.target_modules = setup.plan.adapters->modules;
  return to_json(out);
}

/// Checks that files can be written: a run that cannot save must fail at its start, not after hours.
void probe(const fs::path& root) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) checkpoint::fail_unwritable(fmt::format("the folder '{}' cannot be made", root.native()), error.value());
  const auto file = root / ".probe";
  fs::remove(file, error);
  checkpoint::write_file(file, "checkpoints can be written here\n");
  fs::remove(file, error);
}

}  // namespace

std::unique_ptr<checkpoint::MemoryCopies> prepare_saving(const Setup& setup) {
  const auto& section = setup.recipe().checkpoint();
  const fs::path root = section.checkpoint_dir();
  checkpoint::together(setup.world.control(), [&] {
    if (setup.world.rank() != 0 || !section.enabled()) return;
    try {
      probe(root);
    } catch (const Error& error) {  // nothing is being saved yet: a folder of the recipe, as for `plan`
      throw Error(ExitCode::kEnvironment, error.problems());
    }
  });
  if (!section.enabled() || !section.memory_every_steps()) return nullptr;
  return std::make_unique<checkpoint::MemoryCopies>(setup.world, root);
}

Checkpointing::Checkpointing(const Setup& setup, Trainer& trainer, const EarlyStopping& stopping,
                             const StartPoint& start, std::unique_ptr<checkpoint::MemoryCopies> copies,
                             std::function<void(const std::string&)> say,
                             std::function<void(const metrics::Event&)> note)
    : setup_(setup),
      trainer_(trainer),
      stopping_(stopping),
      say_(std::move(say)),
      note_(std::move(note)),
      root_(setup.recipe().checkpoint->checkpoint_dir()),
      started_from_(start.checkpoint),
      identity_(start.run),
      stored_(stored_type(setup)),
      ends_(setup.recipe().checkpoint->enabled() ? text_ends(setup) : plan::TextEnds{}),
      best_(start.state.best_val_loss),
      best_name_(start.state.best),
      copies_(std::move(copies)) {
  if (!setup.recipe().checkpoint->enabled()) return;
  saver_ = std::make_unique<checkpoint::Saver>(setup.world, root_);
  snapshot_ = std::make_unique<Snapshot>(trainer.runtime(), stored_);
  if (!copies_) return;
  copied_ = std::make_unique<Snapshot>(trainer.runtime(), stored_);
  copies_->check_room(copied_->bytes());
}

void Checkpointing::say_done(const std::optional<checkpoint::SaveReport>& report) const {
  if (!report) return;
  say_(fmt::format("saved     {}: {} in {:.2f} s", report->path.native(),
                   format_bytes(static_cast<double>(report->bytes)), report->seconds));
  const auto name = checkpoint::parse_checkpoint_name(report->path.filename().native());
  note_({.event = "saved",
         .step = name ? std::optional(name->step) : std::nullopt,
         .message = "a checkpoint is complete",
         .fields = {{"path", report->path.native()},
                    {"bytes", static_cast<std::int64_t>(report->bytes)},
                    {"seconds", report->seconds}}});
  for (const auto& each : report->deleted) {
    say_(fmt::format("deleted   {}", (root_ / each).native()));
    note_({.event = "deleted",
           .message = "an older checkpoint is removed",
           .fields = {{"path", (root_ / each).native()}}});
  }
}

checkpoint::RunState Checkpointing::state_after(const StepPlan& step, double loss, std::optional<double> val_loss) {
  checkpoint::RunState out{.step = step.step, .epoch = step.epoch};
  out.global_batch_size = setup_.plan.batch.global;
  out.samples = (step.step + 1) * out.global_batch_size;
  out.optimizer_steps = trainer_.runtime().optimizer().steps();
  if (const auto* scaler = trainer_.scaler())
    out.loss_scale =
        checkpoint::LossScale{scaler->state().scale, scaler->state().growth_steps, scaler->state().hysteresis};
  out.optimizer = setup_.plan.optimizer.name;
  out.seed = setup_.seed();
  out.lr_schedule = config::to_json(config::to_dict(trainer_.schedule().settings()));
  out.loss = loss;
  out.val_loss = val_loss;
  out.best_val_loss = best_;
  out.validations = stopping_.trend();
  out.recent_losses = trainer_.bad_steps().recent();
  out.best = best_name_;
  out.recipe = setup_.loaded.text;
  out.resolved = recorded_recipe(setup_.loaded);
  out.version = std::string(kVersion);
  out.ranks = setup_.world.size();
  return out;
}

void Checkpointing::add_files(checkpoint::SaveRequest& request, const checkpoint::RunState& state) const {
  // Adapters alone cannot be opened as a model, so their folder has no config.json.
  if (setup_.plan.adapters) {
    request.texts = {{fmt::format("model/{}", checkpoint::kAdapterConfig), adapter_config_of(setup_)}};
  } else {
    const auto& model = *setup_.plan.model;
    auto ends = ends_;
    ends.pad = setup_.loader->dataset().padding().id;
    request.texts = {{"model/config.json", plan::saved_config(model, dtype_of(stored_), ends)}};
    if (auto text = plan::saved_generation_config(model, request.texts.front().second); !text.empty())
      request.texts.emplace_back("model/generation_config.json", std::move(text));
  }
  request.texts.emplace_back(checkpoint::kStateName, to_json(state));
  add_companions(request, setup_);
}

void Checkpointing::check_finite(const StepPlan& step) const {
  std::string first;
  for (const auto& name : setup_.world.gather_text(snapshot_->not_finite()))
    if (first.empty()) first = name;
  first = setup_.world.broadcast_text(first);
  if (first.empty()) return;
  throw Error(Diagnostic{"non-finite-weights"}
                  .says("step {} is not saved: {} has a value that is not finite, or is not in the files' type",
                        step.step, first)
                  .hint("the checkpoints before are whole; lower the learning rate, and the same command goes on from "
                        "the newest"));
}

void Checkpointing::after_step(const StepPlan& step, double loss, std::optional<double> val_loss) {
  if (!saver_) return;
  say_done(saver_->poll());
  if (copies_) say_copied(copies_->poll());
  if (step.checkpoint) save(step, loss, val_loss);
  const auto& section = setup_.recipe().checkpoint();
  // A complete checkpoint makes a copy unnecessary.
  const bool complete = step.checkpoint && !section.is_async();
  if (copies_ && !complete && !step.last && (step.step + 1) % *section.memory_every_steps() == 0)
    copy(step, loss, val_loss);
}

void Checkpointing::copy(const StepPlan& step, double loss, std::optional<double> val_loss) {
  say_copied(copies_->finish());
  if (!step.checkpoint) check_finite(step);  // otherwise save() already did
  const bool live = setup_.world.device().is_cpu();
  checkpoint::CopyRequest request{.name = to_text(checkpoint::CheckpointName{step.epoch, step.step}),
                                  .parts = copied_->take(false, kManyFiles),
                                  .texts = {{checkpoint::kStateName, to_json(state_after(step, loss, val_loss))}},
                                  .run = identity_};
  if (setup_.plan.adapters)
    request.texts.emplace_back(fmt::format("model/{}", checkpoint::kAdapterConfig), adapter_config_of(setup_));
  copies_->save(std::move(request), live);
}

void Checkpointing::say_copied(const std::optional<checkpoint::CopyReport>& report) {
  if (!report || said_copied_) return;
  said_copied_ = true;  // only the first of many copies is reported
  const auto name = checkpoint::parse_checkpoint_name(report->name);
  const int hosts = copies_->hosts().count();
  say_(fmt::format("copied    {}: {} per rank in {:.2f} s, kept in memory{}", (copies_->root() / report->name).native(),
                   format_bytes(static_cast<double>(report->bytes)), report->seconds,
                   hosts > 1 ? " of two hosts each" : ""));
  note_({.event = "copied",
         .step = name ? std::optional(name->step) : std::nullopt,
         .message = "the first copy in the memory of hosts is complete",
         .fields = {{"path", (copies_->root() / report->name).native()},
                    {"bytes", static_cast<std::int64_t>(report->bytes)},
                    {"seconds", report->seconds},
                    {"hosts", static_cast<std::int64_t>(hosts)}}});
}

void Checkpointing::remove_copies() const {
  if (copies_) copies_->remove();
}

void Checkpointing::save(const StepPlan& step, double loss, std::optional<double> val_loss) {
  say_done(saver_->finish());
  check_finite(step);
  const auto& section = setup_.recipe().checkpoint();
  checkpoint::SaveRequest request{.name = to_text(checkpoint::CheckpointName{step.epoch, step.step})};
  if (val_loss && (!best_ || *val_loss < *best_)) {
    best_ = val_loss;
    best_name_ = request.name;
    request.lowest_loss = true;
  }
  const auto mode = section.save_consolidated();
  const bool few = mode == config::ConsolidatedMode::kEvery || (mode == config::ConsolidatedMode::kFinal && step.last);
  const bool background = section.is_async() && !step.last;
  request.parts = snapshot_->take(background, few ? kFewFiles : kManyFiles);
  request.run = identity_;
  add_files(request, state_after(step, loss, val_loss));
  request.keep = section.max_recent_checkpoints();
  saver_->save(std::move(request), background);
  saved_ = true;
  if (!background) say_done(saver_->finish());
}

void Checkpointing::finish() {
  if (saver_) say_done(saver_->finish());
  if (copies_) say_copied(copies_->finish());
}

std::string Checkpointing::newest() const {
  if (saver_ && saved_) return checkpoint::newest_seen(root_).native();
  return started_from_.native();
}

}  // namespace automodel::train
