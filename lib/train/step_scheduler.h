// What happens at each optimizer step: which epoch it belongs to, how many accumulation steps it has, whether
// validation and a checkpoint are due, and whether it is the last one.
//
// Everything is a pure function of the step number, so a run can resume at any step without replay. Decisions match
// those of NeMo AutoModel's StepScheduler.
#pragma once

#include <cstdint>
#include <optional>

#include "base/diagnostic.h"
#include "config/training_config.h"

namespace automodel::train {

/// What one optimizer step does.
struct StepPlan {
  std::int64_t step = 0;           ///< from 0, over the whole run
  std::int64_t epoch = 0;          ///< from 0
  std::int64_t step_in_epoch = 0;  ///< from 0; for unbounded data the step itself
  int runs = 0;                    ///< gradient accumulation steps
  bool validate = false;           ///< after the update
  bool checkpoint = false;         ///< after the update and the validation, whose loss is stored in it
  bool last_of_epoch = false;
  bool last = false;  ///< the run ends after this step: no steps or epochs are left, or a stop was requested
  bool operator==(const StepPlan&) const = default;
};

class StepScheduler {
 public:
  /// `runs_per_epoch`: number of local batches per data-parallel rank in an epoch (data::Sampler::runs_per_epoch);
  /// empty for unbounded data, which needs max_steps. If the settings contradict each other, the result is empty, and
  /// `problems` has the reasons (with dotted recipe keys; source locations are left to the caller).
  static std::optional<StepScheduler> make(const config::StepSchedulerConfig& config, int dp_size,
                                           std::optional<std::int64_t> runs_per_epoch, Diagnostics& problems);

  /// The plan of a step. `stop_requested`: some rank has received a signal; all ranks must pass the same value. The
  /// step is then the last one: it saves, but does not validate.
  StepPlan plan(std::int64_t step, bool stop_requested = false) const;

  /// The first step of a run that does not resume (start_step).
  std::int64_t first_step() const { return first_step_; }
  /// One past the last step: max_steps or the end of the last epoch, whichever comes first.
  std::int64_t end_step() const;
  /// Number of steps in the whole run, as schedules count them: min(num_epochs * steps_per_epoch, max_steps).
  std::int64_t total_steps() const;
  int accumulation_runs() const { return accumulation_runs_; }
  std::optional<std::int64_t> steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t num_epochs() const { return num_epochs_; }
  std::int64_t max_steps() const { return max_steps_; }
  std::int64_t ckpt_every_steps() const { return ckpt_every_steps_; }

 private:
  StepScheduler() = default;
  /// Number of epochs completed by the steps before `step`, counted from step 0.
  std::int64_t epochs_before(std::int64_t step) const;

  int accumulation_runs_ = 1;
  int tail_runs_ = 1;  ///< for the last step of an epoch
  std::optional<std::int64_t> steps_per_epoch_;
  std::int64_t num_epochs_ = 1;
  std::int64_t max_steps_ = 1;
  std::int64_t ckpt_every_steps_ = 1;
  std::optional<std::int64_t> val_every_steps_;
  std::int64_t first_step_ = 0;
  std::int64_t first_epoch_ = 0;
  bool checkpoint_every_epoch_ = true;
  bool validate_on_checkpoint_ = true;
};

}  // namespace automodel::train
