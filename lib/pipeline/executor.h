// The only schedule interpreter: executes this rank's row of a lowered table, whichever generator produced it.
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
  /// Scale of each microbatch's summed token losses; usually 1 / (label tokens of the global batch) for all.
  std::vector<double> loss_scales = {};
  /// Gradient of the loss that backward passes start from: 1, or the loss scale of float16 training.
  double seed = 1;
  /// This is the last run before the optimizer step: REDUCE_GRAD reduces only then.
  bool last_run = true;
  /// What the layers keep for the backward pass, by the number of the forward pass in this run on this rank.
  std::function<plan::Recompute(int forward)> recompute = {};
  /// Full backward passes send the gradient of their input before they compute weight gradients.
  bool delay_weight_gradients = false;
};

/// Sum of microbatch losses, accumulated on the device that computed them; only value() makes the host wait.
class LossSum {
 public:
  /// `loss` has one element.
  void add(const at::Tensor& loss);
  void add(const LossSum& other);
  /// 0 if no loss was added.
  double value() const;

 private:
  at::Tensor sum_;  ///< float64
};

class Executor {
 public:
  /// Called before each step of the row.
  using Watch = std::function<void(const schedule::Slot& slot)>;

  /// `stages` are this rank's, in the order of placement.stages_of. `group` is the pipeline group (null: one rank).
  /// All of them must outlive this.
  Executor(Table training, Table evaluation, int rank, comm::Communicator* group, std::vector<Stage*> stages);

  /// Sets the shape of messages between stages from now on (a new sequence length).
  void set_message(const MessageShape& shape);
  /// Watches are called in the order in which they were added.
  void add_watch(Watch watch) { watches_.push_back(std::move(watch)); }

  /// From now on forward and backward of a training microbatch run together, as captured work where possible. Requires
  /// a single-stage pipeline.
  void capture(std::unique_ptr<ops::WorkCapture> capture);
  /// Null if microbatches are not captured.
  const CapturedMicrobatches* captured() const { return captured_.get(); }

  /// Forward and backward of all microbatches. Returns the sum of their scaled losses on the rank of the last stage, no
  /// losses elsewhere.
  LossSum run(const std::vector<model::Microbatch>& microbatches, const RunOptions& options);
  /// Forward only; leaves weights and gradients unchanged.
  LossSum evaluate(const std::vector<model::Microbatch>& microbatches, const std::vector<double>& loss_scales);

  /// The logits [batch, 1, vocabulary] of token `only` of one microbatch, on the rank of the last stage; undefined
  /// elsewhere. Executes the actions of the evaluation table's first microbatch.
  at::Tensor logits(const model::Microbatch& microbatch, std::int64_t only);

  const Table& table() const { return training_; }
  /// Forward passes that this rank runs before its first backward pass.
  int in_flight() const;

 private:
  struct Run;
  void execute(const schedule::Action& action, Run& run);
  void forward(const schedule::Action& action, Run& run);
  void backward(const schedule::Action& action, Run& run);
  Stage& stage(schedule::Stage number);
  void walk(const schedule::Row& row, Run& run);
  /// Computes the weight gradients that the backward pass of `action`'s stage and microbatch deferred.
  void weight_gradients(const schedule::Action& action);

  Table training_, evaluation_;
  int rank_;
  std::vector<Stage*> stages_;
  Links training_links_, evaluation_links_;
  MessageShape message_ = {};
  std::vector<Watch> watches_ = {};
  std::unique_ptr<CapturedMicrobatches> captured_ = {};
};

/// Divides the accumulated gradients of a stage by `divisor`. Source: scale_grads_by_divisor in NeMo AutoModel's and
/// PyTorch's pipelining.
void scale_grads_by_divisor(model::Weights& weights, double divisor);

}  // namespace automodel::pipeline
