#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

namespace automodel::optim {

void LossScaler::update(bool overflow) {
  if (overflow) {
    growth_ = 0;
    if (--hysteresis_ <= 0) scale_ = std::max(scale_ * options_.backoff, options_.least);
    return;
  }
  if (++growth_ < options_.window) return;
  growth_ = 0;
  hysteresis_ = options_.hysteresis;
  if (std::isfinite(scale_ * options_.growth)) scale_ *= options_.growth;
}

}  // namespace automodel::optim
