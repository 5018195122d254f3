// The dynamic loss scale of float16 training.
#pragma once

#include <cstdint>

namespace automodel::optim {

struct LossScalerOptions {
  float initial = 4294967296.0F;  ///< 2^32
  float least = 1;
  float growth = 2;
  float backoff = 0.5F;
  int window = 1000;   ///< consecutive finite steps before the scale grows
  int hysteresis = 2;  ///< overflowing steps before it shrinks
};

/// Source: Megatron Core's DynamicGradScaler. Overflows use up the hysteresis, which is restored only when the scale
/// grows, so that after the first reduction every further overflow reduces again. Unlike there, the scale never becomes
/// infinite.
class LossScaler {
 public:
  explicit LossScaler(LossScalerOptions options = {})
      : options_(options), scale_(options.initial), hysteresis_(options.hysteresis) {}

  /// The loss is multiplied by this before the backward pass; gradients are divided by it afterwards.
  float scale() const { return scale_; }
  bool at_least() const { return scale_ <= options_.least; }
  /// Call after each step. `overflow`: a gradient was not finite, and the step was skipped.
  void update(bool overflow);

  int growth_steps() const { return growth_; }
  int hysteresis() const { return hysteresis_; }
  /// The state stored in checkpoints.
  struct State {
    float scale;
    int growth_steps, hysteresis;
  };
  State state() const { return {scale_, growth_, hysteresis_}; }
  void restore(const State& state) {
    scale_ = state.scale, growth_ = state.growth_steps, hysteresis_ = state.hysteresis;
  }

 private:
  LossScalerOptions options_;
  float scale_;
  int growth_ = 0;
  int hysteresis_;
};

}  // namespace automodel::optim
