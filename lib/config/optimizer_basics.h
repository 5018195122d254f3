// What every kind of optimizer section has in common.
#pragma once

#include <vector>

#include "base/diagnostic.h"
#include "config/training_config.h"

namespace automodel::config {

struct OptimizerBasics {
  double lr = 0;
  double weight_decay = 0;
  std::vector<ParamGroupOverride> overrides = {};
};
OptimizerBasics basics_of(const OptimizerConfig& config);

/// Problems of patterns (not a regular expression), keyed "optimizer.param_group_overrides.N.pattern".
Diagnostics check_overrides(const std::vector<ParamGroupOverride>& overrides);

}  // namespace automodel::config
