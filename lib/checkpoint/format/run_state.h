// state.json: what a run needs, besides weights and optimizer states, to resume as if it had not been interrupted.
// Everything else (data order, dropout, step schedule, learning rates) is a function of these numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::checkpoint {

/// State of float16 training's dynamic loss scaling.
struct LossScale {
  double scale = 1;
  std::int64_t growth_steps = 0;
  std::int64_t hysteresis = 0;
  bool operator==(const LossScale&) const = default;
};

/// How the loss on the validation set that ranks checkpoints went, over all validations, saved or not.
struct ValidationTrend {
  std::optional<double> lowest = {};
  std::int64_t not_lower = 0;  ///< validations since one was lower (step_scheduler.early_stopping_threshold)
  bool operator==(const ValidationTrend&) const = default;
};

struct RunState {
  std::int64_t step = 0;     ///< the last finished step, -1 if there is none; the run continues with the next
  std::int64_t epoch = 0;    ///< of that step
  std::int64_t samples = 0;  ///< consumed so far: (step + 1) * global_batch_size
  std::int64_t optimizer_steps = 0;
  std::string optimizer = {};          ///< "adamw", ...; "": the checkpoint has no states of an optimizer
  std::uint64_t seed = 0;              ///< of every random stream; with the step, this is the entire RNG state
  std::int64_t global_batch_size = 0;  ///< 0: unknown
  std::string lr_schedule = {};        ///< JSON object: plan::LrSettings
  std::optional<LossScale> loss_scale = {};
  std::optional<double> loss = {};           ///< at `step`
  std::optional<double> val_loss = {};       ///< of checkpoint.best_metric_key, if it was computed at this step
  std::optional<double> best_val_loss = {};  ///< lowest of the run so far
  std::string best = {};                     ///< name of the checkpoint with it
  ValidationTrend validations = {};
  std::vector<double> recent_losses = {};  ///< baseline for spike detection (fault_tolerance.loss_spike)
  std::string recipe = {};                 ///< text of the recipe file
  std::string resolved = {};               ///< JSON object: the recipe with overrides and defaults applied
  std::string version = {};                ///< of the program
  int ranks = 0;
};

inline constexpr const char* kStateName = "state.json";

std::string to_json(const RunState& state);
/// Problems (reported for `file`): state-syntax.
std::optional<RunState> parse_run_state(std::string_view text, std::string_view file, Diagnostics& problems);
/// Reads a checkpoint's state. Problems: cannot-read, state-syntax.
std::optional<RunState> read_run_state(const std::filesystem::path& checkpoint, Diagnostics& problems);

}  // namespace automodel::checkpoint
