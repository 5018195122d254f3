// One stage at run time: its model, its sharding, and what it keeps of each microbatch between forward and backward.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/stage_model.h"
#include "ops/graph.h"
#include "ops/parameter.h"
#include "schedule/action.h"

namespace automodel::pipeline {

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

class Stage {
 public:
  /// `sharding` may be null. `model` and `sharding` must outlive this.
  Stage(schedule::Stage number, model::StageModel& model, StageSharding* sharding)
      : number_(number), model_(model), sharding_(sharding) {}

  schedule::Stage number() const { return number_; }
  model::StageModel& model() { return model_; }
  StageSharding* sharding() { return sharding_; }

  /// Drops all state of earlier runs and makes room for `microbatches` microbatches.
  void begin(int microbatches);
  /// `input` is undefined on the first stage. Returns the detached output: activations, or the loss on the last stage.
  at::Tensor forward(int microbatch, const model::Microbatch& data, const at::Tensor& input,
                     const model::ForwardOptions& options);
  /// Full backward. Returns the gradient of the input, undefined on the first stage.
  at::Tensor backward(int microbatch, const at::Tensor& gradient);
  /// Computes the gradient of the input only; weight gradients are deferred to backward_weight.
  at::Tensor backward_input(int microbatch, const at::Tensor& gradient);
  void backward_weight(int microbatch);

 private:
  struct Kept {
    at::Tensor input = {};
    ops::Origin output = {};
    ops::WeightGradients waiting = {};
  };
  Kept& kept(int microbatch) { return kept_[static_cast<std::size_t>(microbatch)]; }
  at::Tensor run_backward(Kept& kept, const at::Tensor& gradient);

  schedule::Stage number_;
  model::StageModel& model_;
  StageSharding* sharding_;
  std::vector<Kept> kept_ = {};
};

}  // namespace automodel::pipeline
