// The one interpreter of schedules: it executes this rank's row of a lowered table, whichever generator made it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "pipeline/captured_microbatches.h"
#include "pipeline/links.h"
#include "pipeline/stage.h"
#include "schedule/placement.h"

namespace automodel::pipeline {

/// A complete table (schedule::lower) with its placement and shape.
struct Table {
  schedule::Schedule rows = {};
  schedule::Placement placement = {};
  schedule::Shape shape = {};
};

/// One run of a schedule: a gradient accumulation step.
struct RunOptions {
  /// Factor of each microbatch's summed token losses; usually all 1 / label tokens of the global batch.
  std::vector<double> loss_scales = {};
  /// What the backward pass starts with: 1, or the loss scale of float16 training.
  double seed = 1;
  /// No further runs follow before the optimizer: REDUCE_GRAD acts.
  bool last_run = true;
  /// How a forward pass runs, by its number in this run on this rank: what its layers keep.
  std::function<model::Keep(int forward)> keep = {};
  /// A full backward pass sends the gradient of its input before it computes those of weights.
  bool delay_weight_gradients = false;
};

/// Losses of microbatches, summed where they were computed: the host waits for a device only where it asks for the
/// value.
class LossSum {
 public:
  /// A tensor of one element.
  void add(const at::Tensor& loss);
  void add(const LossSum& other);
  /// 0 without losses.
  double value() const;

 private:
  at::Tensor sum_;  ///< float64
};

class Executor {
 public:
  /// Called before each step of the row.
  using Watch = std::function<void(const schedule::Slot& slot)>;

  /// `stages` are this rank's, in the order of placement.stages_of. `group` is the pipeline group (null: one rank);
  /// all outlive this.
  Executor(Table training, Table evaluation, int rank, comm::Communicator* group, std::vector<Stage*> stages);

  /// Sets the shape of messages between stages from now on (a new sequence length).
  void set_message(const MessageShape& shape);
  /// Adds one; they are called in the order in which they were added.
  void add_watch(Watch watch) { watches_.push_back(std::move(watch)); }

  /// From now on forward and backward of a microbatch are one: captured work where its shape allows. For a single
  /// stage.
  void capture(std::unique_ptr<ops::WorkCapture> capture);
  /// Null where microbatches are not captured.
  const CapturedMicrobatches* captured() const { return captured_.get(); }

  /// Forward and backward of all microbatches. Returns the losses of microbatches whose last stage is here, times their
  /// factors.
  LossSum run(const std::vector<model::Microbatch>& microbatches, const RunOptions& options);
  /// Forward only; changes nothing.
  LossSum evaluate(const std::vector<model::Microbatch>& microbatches, const std::vector<double>& loss_scales);

  /// The logits [batch, 1, vocabulary] of the token `only` of one microbatch, on the rank of the last stage; undefined
  /// elsewhere. The microbatch goes through the stages as the first one of an evaluation does.
  at::Tensor logits(const model::Microbatch& microbatch, std::int64_t only);

  const Table& table() const { return training_; }
  /// Forward passes that this rank runs before its first backward pass: microbatches in flight at most.
  int in_flight() const;

 private:
  struct Run;
  void execute(const schedule::Action& action, Run& run);
  void forward(const schedule::Action& action, Run& run);
  void backward(const schedule::Action& action, Run& run);
  Stage& stage(schedule::Stage number);
  void walk(const schedule::Row& row, Run& run);
  /// Computes weight gradients that were deferred until after the message of `action`, or until after anything.
  void weight_gradients(const schedule::Action& action);

  Table training_, evaluation_;
  int rank_;
  std::vector<Stage*> stages_;
  Links training_links_, evaluation_links_;
  MessageShape message_ = {};
  std::vector<Watch> watches_ = {};
  std::unique_ptr<CapturedMicrobatches> captured_ = {};
};

/// Divides the accumulated gradients of a stage by `divisor`: scale_grads_by_divisor of NeMo AutoModel's and PyTorch's
/// pipelining.
void scale_grads_by_divisor(model::Weights& weights, double divisor);

}  // namespace automodel::pipeline
