// One optimizer step on one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "data/batch.h"
#include "optim/loss_scaler.h"
#include "plan/lr_schedule.h"
#include "train/bad_steps.h"
#include "train/phase_clock.h"
#include "train/runtime.h"

namespace automodel::train {

/// Callbacks that a program using the library may set.
struct StepHooks {
  /// Factor of the gradients in the backward pass of step `step`, divided out again in the gradient norm and the
  /// update. Replaces the dynamic loss scale. Source: Megatron Core, grad_scale_func.
  std::function<double(std::int64_t step)> grad_scale = {};
};

/// Result of a step, the same on all ranks.
struct StepResult {
  double loss = 0;       ///< mean over all label tokens of the global batch, before the update
  double grad_norm = 0;  ///< before clipping
  double lr = 0;
  std::int64_t tokens = 0;  ///< in the global batch, without padding
  std::int64_t label_tokens = 0;
  std::optional<double> accuracy = {};  ///< of a classifier: fraction of rows, before the update
  std::optional<double> ce_loss = {},
                        kd_loss = {};  ///< of a student: cross-entropy and divergence, before their weights
  double grad_scale = 1;               ///< gradient that the backward pass started from
  bool skipped = false;  ///< the weights were not changed: see `bad`; if empty, a gradient overflowed float16
  std::optional<BadStep> bad = {};
  bool stop_requested = false;  ///< some rank received a stop signal
  /// By rank, the median times of the last window of steps, once after each window; otherwise empty.
  std::vector<PhaseSeconds> rank_seconds = {};
};

class Trainer {
 public:
  Trainer(Runtime& runtime, plan::LrSchedule schedule, StepHooks hooks = {});

  /// One step over this rank's batches, one per run of the schedule. `step` counts from 0 over the whole training.
  /// `stop`: this rank was asked to stop. A bad step changes no weights; throws Error (kNonFinite) if the rule for bad
  /// steps says to stop.
  StepResult step(std::int64_t step, const std::vector<data::Batch>& batches, bool stop);

  /// Forward and backward without the update, for verification: gradients are left in place.
  StepResult gradients(std::int64_t step, const std::vector<data::Batch>& batches, bool stop);

  Runtime& runtime() { return runtime_; }
  const plan::LrSchedule& schedule() const { return schedule_; }
  /// Null unless training is in float16 with a dynamic loss scale.
  optim::LossScaler* scaler() { return scaler_ ? &*scaler_ : nullptr; }
  /// By default, training stops at non-finite values.
  BadStepRule& bad_steps() { return bad_steps_; }
  /// From now on steps are timed; after every `window` steps all ranks receive each rank's medians, in the all-reduce
  /// of the next step's sums. The caller marks when a step begins and when its batches are loaded.
  PhaseClock& time_phases(int window) { return clock_.emplace(window); }
  const BadStepRule& bad_steps() const { return bad_steps_; }

 private:
  std::function<plan::Recompute(int)> recompute_rule() const;
  void end(StepPhase phase) {
    if (clock_) clock_->end(phase);
  }
  StepResult update(std::int64_t step, StepResult result);
  /// Adds the name of a parameter with a non-finite gradient to the reason. Collective.
  void name_culprit(BadStep& bad);

  Runtime& runtime_;
  plan::LrSchedule schedule_;
  StepHooks hooks_;
  std::optional<optim::LossScaler> scaler_ = {};
  BadStepRule bad_steps_;
  std::optional<PhaseClock> clock_ = {};
  std::int64_t first_step_;
};

}  // namespace automodel::train
