// Common parts of all optimizer sections.
#pragma once

#include <optional>
#include <vector>

#include "base/diagnostic.h"
#include "config/training_config.h"

namespace automodel::config {

struct OptimizerBasics {
  double lr = 0;
  double weight_decay = 0;
  std::vector<ParamGroupOverride> overrides = {};
};
/// State dtypes requested by the section; empty if not given or if this optimizer has no such key.
struct OptimizerTypes {
  std::optional<DType> first_moment = {};
  std::optional<DType> second_moment = {};
  std::optional<DType> gradient = {};
  std::optional<DType> master = {};
};
OptimizerTypes types_of(const OptimizerConfig& config);
OptimizerBasics basics_of(const OptimizerConfig& config);

/// Reports patterns that are not valid regular expressions, keyed "optimizer.param_group_overrides.N.pattern".
Diagnostics check_overrides(const std::vector<ParamGroupOverride>& overrides);

}  // namespace automodel::config
