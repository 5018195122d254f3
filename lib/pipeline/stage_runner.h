// What the executor knows about a stage: computations on messages, and the events that sharding depends on. Nothing
// here knows a model, so the executor runs with any implementation (test/pipeline has a fake one).
#pragma once

#include <ATen/core/Tensor.h>

#include "schedule/action.h"

namespace automodel::pipeline {

/// What neighbouring stages exchange for a microbatch: hidden states or their gradients, and a few float64 values that
/// accompany them (MessageShape::side).
struct Message {
  at::Tensor value = {};
  at::Tensor side = {};
};

/// Implements the schedule's actions UNSHARD, RESHARD and REDUCE_GRAD for a stage, and receives the other events that
/// sharding depends on.
class StageSharding {
 public:
  virtual ~StageSharding() = default;
  virtual void unshard() = 0;
  virtual void reshard() = 0;
  /// REDUCE_GRAD: the stage's backward passes of this run are done. `last`: it is the last run of the step.
  virtual void reduce(bool last) = 0;
  /// The stage's last backward pass (B or W) of the step is about to begin.
  virtual void last_backward() = 0;
  /// Called before and after deferred weight gradients are computed (W, or part of a delayed full backward).
  virtual void weight_gradients_begin() = 0;
  virtual void weight_gradients_done() = 0;
  /// Called before a run of captured microbatches, during which no event above has any effect until REDUCE_GRAD.
  /// Afterwards weights are available, and gradients are allocated and can be accumulated into: zero unless something
  /// was accumulated before.
  virtual void settle() = 0;
};

/// A stage in one kind of pass. The executor calls begin(), the actions of its row in order, and end().
class StageRunner {
 public:
  virtual ~StageRunner() = default;
  virtual schedule::Stage number() const = 0;
  /// Null: nothing is sharded.
  virtual StageSharding* sharding() = 0;

  /// A run of `microbatches` microbatches begins.
  virtual void begin(int microbatches) = 0;
  /// `input` is what the stage before returned, undefined on the first stage. Returns what the next stage gets; what
  /// the last stage returns is dropped.
  virtual Message forward(int microbatch, const Message& input) = 0;
  /// `gradient` is that of forward()'s result, undefined on the last stage. Returns the gradient of the input; what the
  /// first stage returns is dropped.
  virtual Message backward(int microbatch, const Message& gradient) = 0;
  /// The same without weight gradients: weight_gradients() follows later.
  virtual Message backward_input(int microbatch, const Message& gradient) = 0;
  virtual void weight_gradients(int microbatch) = 0;
  /// The row is done and everything that was sent has left.
  virtual void end() = 0;
};

}  // namespace automodel::pipeline
