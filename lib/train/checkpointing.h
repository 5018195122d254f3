// Checkpoints of a run: where it starts from, when it saves, what it says about that.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/format/manifest.h"
#include "checkpoint/memory_copies.h"
#include "checkpoint/saver.h"
#include "metrics/event_log.h"
#include "plan/lr_schedule.h"
#include "train/resume.h"
#include "train/runtime.h"
#include "train/setup.h"
#include "train/snapshot.h"
#include "train/step_scheduler.h"
#include "train/trainer.h"

namespace automodel::train {

class Checkpointing {
 public:
  /// Chooses where the run starts from and tries that its folder can be written to. All ranks make it together; throws
  /// Error (kCheckpoint; kBadInput for a folder of pretrained weights that do not fit the model). `say` gets lines for
  /// people on rank 0, `note` what of it is an event of the run.
  /// `from`: a checkpoint to go on from in place of what the recipe says.
  Checkpointing(
      const Setup& setup, std::function<void(const std::string&)> say, const std::filesystem::path& from = {},
      std::function<void(const metrics::Event&)> note = [](const metrics::Event&) {});

  /// Of a checkpoint, of a folder of pretrained weights, or from the seed.
  parallel::WeightSource weights() const;
  /// The schedule that the run goes on with.
  plan::LrSchedule rates() const;
  /// The rest of a checkpoint's state: optimizer, loss scale. Once, before the first step; the trainer is what later
  /// checkpoints are taken from and outlives this.
  void restore(Trainer& trainer);
  std::int64_t first_step() const;
  /// The checkpoint that the run goes on from; empty for a new run.
  bool resumed_in_memory() const { return resume_ && resume_->in_memory(); }
  std::string resumed_from() const { return resume_ ? resume_->path().native() : ""; }

  /// Saves where the step's plan says so. `val_loss`: of the validation set that checkpoint.best_metric_key names.
  void after_step(const StepPlan& step, double loss, std::optional<double> val_loss);
  /// Waits for a save under way.
  void finish();
  /// The folder of the newest checkpoint that this run has saved or goes on from; empty where there is none. After
  /// finish().
  std::string newest() const;
  /// The run has ended well: no copy stays in the memory of hosts.
  void remove_copies() const;

 private:
  /// The copy in the hosts' memory that is newer than every checkpoint; empty where there is none.
  std::filesystem::path newer_copy() const;
  void save(const StepPlan& step, double loss, std::optional<double> val_loss);
  void copy(const StepPlan& step, double loss, std::optional<double> val_loss);
  void probe_folder() const;
  /// Throws Error (kNonFinite) on all ranks where some rank would write what is not finite.
  void check_finite(const StepPlan& step) const;
  void say_copied(const std::optional<checkpoint::CopyReport>& report);
  void say_done(const std::optional<checkpoint::SaveReport>& report) const;
  checkpoint::RunState state_after(const StepPlan& step, double loss, std::optional<double> val_loss);
  void add_files(checkpoint::SaveRequest& request, const checkpoint::RunState& state) const;

  const Setup& setup_;
  std::function<void(const std::string&)> say_;
  std::function<void(const metrics::Event&)> note_;
  std::filesystem::path root_;
  std::shared_ptr<comm::Communicator> group_;
  checkpoint::RunIdentity identity_;
  std::unique_ptr<Resume> resume_;
  std::shared_ptr<const WeightFiles> pretrained_;
  Trainer* trainer_ = nullptr;
  std::unique_ptr<Snapshot> snapshot_;
  std::unique_ptr<Snapshot> copied_;  ///< for copies in memory, which may be made beside a save
  at::ScalarType stored_;
  std::optional<double> best_;
  std::string best_name_;
  bool saved_ = false;
  bool said_copied_ = false;
  std::unique_ptr<checkpoint::MemoryCopies> copies_;  // both end before the memory that they write from
  std::unique_ptr<checkpoint::Saver> saver_;
};

}  // namespace automodel::train
