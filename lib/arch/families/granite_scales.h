// Scaling factors of IBM's Granite models.
#pragma once

#include "arch/config_reader.h"
#include "arch/model_spec.h"

namespace automodel::arch {

/// embedding_multiplier, attention_multiplier (replaces the usual score scale), residual_multiplier, logits_scaling.
inline void read_granite_scales(ConfigReader& config, ModelSpec& spec) {
  spec.embedding_scale = config.number({"embedding_multiplier"}, 1.0);
  spec.attention_scale = config.number({"attention_multiplier"}, 1.0);
  spec.residual_scale = config.number({"residual_multiplier"}, 1.0);
  const double divisor = config.number({"logits_scaling"}, 1.0);
  if (divisor == 0)
    config.bad_value("logits_scaling", "logits are divided by 0", "it is a number other than 0");
  else
    spec.logit_scale = 1 / divisor;
}

}  // namespace automodel::arch
