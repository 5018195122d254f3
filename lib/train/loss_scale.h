// How the losses of a step's microbatches become its loss and its gradients: one value, made before the first backward
// pass.
#pragma once

#include <vector>

#include "data/batch.h"

namespace automodel::train {

/// Of the batches of a rank or, summed over ranks, of the global batch.
struct LossCounts {
  double tokens = 0;        ///< without padding
  double labels = 0;        ///< tokens that have a loss
  double microbatches = 0;  ///< with at least one sample: what an epoch's last step is filled up with is none
};
/// `rows` of a microbatch.
LossCounts count_losses(const std::vector<data::Batch>& batches, int rows);

/// The loss is the mean over all label tokens of the global batch; with `by_microbatch` (NeMo AutoModel's
/// scale_grads_in_schedule) the mean over microbatches of each one's own mean, where gradients are divided after the
/// last backward pass, as the schedules of torch.distributed.pipelining do.
class LossScale {
 public:
  /// `whole`: counts of the global batch. `backward`: what the backward pass starts with, 1 or a loss scale of float16.
  LossScale(const LossCounts& whole, bool by_microbatch, double backward)
      : whole_(whole), by_microbatch_(by_microbatch), backward_(backward) {}

  /// What the summed token losses of each microbatch of `batch` are multiplied by.
  std::vector<double> factors(const data::Batch& batch, int rows) const;
  double backward() const { return backward_; }
  /// What the summed gradients are divided by before they are reduced; 0: by nothing.
  double divisor() const;
  /// This rank's part of the step's loss, from the sum of its microbatches' losses times their factors.
  double loss(double sum) const { return by_microbatch_ ? sum / divisor() : sum; }
  /// Of gradients as they are after the backward pass, to those of the loss.
  double unscale(double norm) const { return norm / backward_; }

 private:
  LossCounts whole_;
  bool by_microbatch_;
  double backward_;
};

}  // namespace automodel::train
