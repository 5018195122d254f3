// One stage at run time: its model, what it keeps of every microbatch between forward and backward, its sharding.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/stage_model.h"
#include "ops/graph.h"
#include "ops/parameter.h"
#include "schedule/action.h"

namespace automodel::pipeline {

/// Implements the schedule's actions UNSHARD, RESHARD and REDUCE_GRAD for a stage, with the events that sharding needs.
class StageSharding {
 public:
  virtual ~StageSharding() = default;
  virtual void unshard() = 0;
  virtual void reshard() = 0;
  /// REDUCE_GRAD: the stage's backward passes of this run are done; `last` of the step.
  virtual void reduce(bool last) = 0;
  /// The stage's last backward pass of the step begins.
  virtual void last_backward() = 0;
  /// A W action begins, and is done.
  virtual void weight_gradients_begin() = 0;
  virtual void weight_gradients_done() = 0;
  /// For a run of captured microbatches, where none of the events above happens but REDUCE_GRAD: values are there, and
  /// gradients have memory and a content to add to, zero where nothing was added yet.
  virtual void settle() = 0;
};

class Stage {
 public:
  /// `sharding` may be null; both outlive this.
  Stage(schedule::Stage number, model::StageModel& model, StageSharding* sharding)
      : number_(number), model_(model), sharding_(sharding) {}

  schedule::Stage number() const { return number_; }
  model::StageModel& model() { return model_; }
  StageSharding* sharding() { return sharding_; }

  /// Forgets everything of earlier runs and makes room for `microbatches`.
  void begin(int microbatches);
  /// `input` is undefined on the first stage. Returns the output (detached), or the loss.
  at::Tensor forward(int microbatch, const model::Microbatch& data, const at::Tensor& input,
                     const model::ForwardOptions& options);
  /// Full backward. Returns the gradient of the input, undefined on the first stage.
  at::Tensor backward(int microbatch, const at::Tensor& gradient);
  /// The gradient of the input alone; weight gradients wait for backward_weight.
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
