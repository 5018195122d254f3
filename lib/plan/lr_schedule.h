// Learning rate and weight decay as pure functions of the step number, so that resuming at step n simply evaluates at
// n.
//
// Shapes and defaults follow NeMo AutoModel's OptimizerParamScheduler, which is Megatron's. WSD is warm-up, stable,
// decay (Hu et al., "MiniCPM", 2024); its exponential decay is 2 * 0.5^r - 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "config/training_config.h"

namespace automodel::plan {

/// A schedule with every default filled in, as stored in checkpoints. Declared like a recipe section so that
/// config::to_dict can write it and config::Reader can read it.
struct LrSettings {
  using IsSection = void;
  config::Field<double> init_lr{"init_lr", 0.0, "Rate at step 0 of the warm-up."};
  config::Field<double> max_lr{"max_lr", 0.0, "Rate after warm-up."};
  config::Field<double> min_lr{"min_lr", 0.0, "Rate after the decay."};
  config::Field<std::int64_t> lr_warmup_steps{"lr_warmup_steps", 0, "Steps of warm-up."};
  config::Field<std::int64_t> lr_decay_steps{"lr_decay_steps", 1, "Step at which the decay ends."};
  config::Field<config::DecayStyle> lr_decay_style{"lr_decay_style", config::DecayStyle::kConstant,
                                                   "Shape of the decay."};
  config::Field<double> start_wd{"start_wd", 0.0, "Weight decay at step 0."};
  config::Field<double> end_wd{"end_wd", 0.0, "Weight decay at the end."};
  config::Field<std::int64_t> wd_incr_steps{"wd_incr_steps", 1, "Steps over which the weight decay changes."};
  config::Field<config::WeightDecayStyle> wd_incr_style{"wd_incr_style", config::WeightDecayStyle::kConstant,
                                                        "Shape of that change."};
  config::Field<std::optional<std::int64_t>> wsd_decay_steps{"wsd_decay_steps", std::nullopt,
                                                             "Steps of the final decay under WSD."};
  config::Field<std::optional<config::WsdDecayStyle>> lr_wsd_decay_style{"lr_wsd_decay_style", std::nullopt,
                                                                         "Shape of the final decay under WSD."};
  bool operator==(const LrSettings&) const = default;
};

class LrSchedule {
 public:
  explicit LrSchedule(const LrSettings& settings) : settings_(settings) {}

  /// The learning rate of step n (from 0); n may be beyond the end.
  double learning_rate(std::int64_t n) const;
  double weight_decay(std::int64_t n) const;
  const LrSettings& settings() const { return settings_; }

 private:
  LrSettings settings_;
};

/// The schedule of a recipe; without a section, the constant rate `base_lr` (optimizer.lr). Defaults of warm-up and
/// decay derive from `total_steps`, which counts the whole run, not just the remaining steps. Returns nothing if the
/// numbers contradict each other and adds the reasons to `problems` (with dotted recipe keys; the caller fills in
/// locations).
std::optional<LrSchedule> make_lr_schedule(const std::optional<config::LrSchedulerConfig>& section, double base_lr,
                                           double base_weight_decay, std::int64_t total_steps, Diagnostics& problems);

/// The settings a resumed run continues with: the recipe's with override_opt_param_scheduler or without a section, the
/// checkpoint's with use_checkpoint_opt_param_scheduler. Otherwise the two must agree, and each difference is reported.
LrSettings resumed_settings(const std::optional<config::LrSchedulerConfig>& section, const LrSettings& recipe,
                            const LrSettings& checkpoint, Diagnostics& problems);

/// "max_lr 0.001 (was 0.0005)" for each setting that differs and has an effect; `other` is the word in front of the
/// second number.
std::vector<std::string> rate_changes(const LrSettings& now, const LrSettings& before, std::string_view other = "was");

}  // namespace automodel::plan
