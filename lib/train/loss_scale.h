// How a step's loss and gradients result from the losses of its microbatches: one object, constructed before the first
// backward pass.
#pragma once

#include <vector>

#include "data/batch.h"

namespace automodel::train {

/// Counts over the batches of a rank or, summed over ranks, over the global batch.
struct LossCounts {
  double tokens = 0;        ///< excluding padding
  double labels = 0;        ///< tokens that have a loss
  double microbatches = 0;  ///< with at least one sample: those that only pad an epoch's last step do not count
};
/// `rows`: number of rows per microbatch.
LossCounts count_losses(const std::vector<data::Batch>& batches, int rows);

/// The loss is the mean over all label tokens of the global batch. With `by_microbatch` (NeMo AutoModel's
/// scale_grads_in_schedule) it is the mean of the microbatches' own means, and gradients are divided after the last
/// backward pass, as in the schedules of torch.distributed.pipelining.
class LossScale {
 public:
  /// `whole`: counts of the global batch. `backward`: the gradient that backward passes start from, 1 or the loss scale
  /// of float16.
  LossScale(const LossCounts& whole, bool by_microbatch, double backward)
      : whole_(whole), by_microbatch_(by_microbatch), backward_(backward) {}

  /// For each microbatch of `batch`, the factor of its summed token losses.
  std::vector<double> factors(const data::Batch& batch, int rows) const;
  double backward() const { return backward_; }
  /// What summed gradients are divided by before they are reduced; 0: not divided.
  double divisor() const;
  /// This rank's part of the step's loss, from the sum over its microbatches of loss times factor.
  double loss(double sum) const { return by_microbatch_ ? sum / divisor() : sum; }
  /// Converts a norm of gradients as the backward pass leaves them to that of the loss's gradients.
  double unscale(double norm) const { return norm / backward_; }

 private:
  LossCounts whole_;
  bool by_microbatch_;
  double backward_;
};

}  // namespace automodel::train
