// Checkpoints of a run: when to save, what to write, and what to report.
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
#include "plan/saved_config.h"
#include "train/early_stopping.h"
#include "train/setup.h"
#include "train/snapshot.h"
#include "train/start_point.h"
#include "train/step_scheduler.h"
#include "train/trainer.h"

namespace automodel::train {

/// Call before anything is built: checks that checkpoints can be written, and creates the copies in host memory (null
/// if the recipe asks for none). Collective. Throws Error (kCheckpoint).
std::unique_ptr<checkpoint::MemoryCopies> prepare_saving(const Setup& setup);

/// Saves a run. All arguments must outlive it.
class Checkpointing {
 public:
  /// Collective; construct after `start` was restored. On rank 0, `say` receives messages for people, `note` the run's
  /// events. Throws Error (kCheckpoint, memory-copies-too-large).
  Checkpointing(
      const Setup& setup, Trainer& trainer, const EarlyStopping& stopping, const StartPoint& start,
      std::unique_ptr<checkpoint::MemoryCopies> copies,
      std::function<void(const std::string&)> say = [](const std::string&) {},
      std::function<void(const metrics::Event&)> note = [](const metrics::Event&) {});

  /// Saves if the step's plan says so. `val_loss`: loss on the validation set that checkpoint.best_metric_key names.
  void after_step(const StepPlan& step, double loss, std::optional<double> val_loss);
  /// Waits for a save in progress.
  void finish();
  /// The folder of the newest checkpoint that this run saved or resumed from; empty if there is none. Call after
  /// finish().
  std::string newest() const;
  /// The name of the checkpoint with the lowest loss on the validation set, and that loss; empty if there is none.
  const std::string& best_name() const { return best_name_; }
  std::optional<double> best_loss() const { return best_; }
  /// Removes all copies in host memory, after a successful run.
  void remove_copies() const;

 private:
  void save(const StepPlan& step, double loss, std::optional<double> val_loss);
  void copy(const StepPlan& step, double loss, std::optional<double> val_loss);
  /// Throws Error (kNonFinite) on all ranks if any rank would write a non-finite value.
  void check_finite(const StepPlan& step) const;
  void say_copied(const std::optional<checkpoint::CopyReport>& report);
  void say_done(const std::optional<checkpoint::SaveReport>& report) const;
  checkpoint::RunState state_after(const StepPlan& step, double loss, std::optional<double> val_loss);
  void add_files(checkpoint::SaveRequest& request, const checkpoint::RunState& state) const;

  const Setup& setup_;
  Trainer& trainer_;
  const EarlyStopping& stopping_;
  std::function<void(const std::string&)> say_;
  std::function<void(const metrics::Event&)> note_;
  std::filesystem::path root_;
  std::filesystem::path started_from_;
  checkpoint::RunIdentity identity_;
  std::unique_ptr<Snapshot> snapshot_;
  std::unique_ptr<Snapshot> copied_;  ///< for copies in memory, which may be in progress at the same time as a save
  at::ScalarType stored_;
  plan::TextEnds ends_;
  std::optional<double> best_;
  std::string best_name_;
  bool saved_ = false;
  bool said_copied_ = false;
  std::unique_ptr<checkpoint::MemoryCopies> copies_;  // last members: both must be destroyed before the memory that
                                                      // they write from
  std::unique_ptr<checkpoint::Saver> saver_;
};

}  // namespace automodel::train
