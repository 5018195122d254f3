// One stage at run time: its model, its sharding, and what it keeps of each microbatch between forward and backward.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/stage_model.h"
#include "ops/graph.h"
#include "ops/parameter.h"
#include "pipeline/stage_runner.h"
#include "schedule/action.h"

namespace automodel::pipeline {

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
  /// Whether every forward pass had its backward pass, and every deferred weight gradient was computed.
  bool done() const;

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

/// Divides the accumulated gradients of a stage by `divisor`. Source: scale_grads_by_divisor in NeMo AutoModel's and
/// PyTorch's pipelining.
void scale_grads_by_divisor(model::Weights& weights, double divisor);

}  // namespace automodel::pipeline
