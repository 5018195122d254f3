// A stage without a backward pass: in evaluation and in generation. Weights and gradients stay unchanged.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/error.h"
#include "model/blocks.h"
#include "pipeline/stage.h"
#include "pipeline/stage_runner.h"

namespace automodel::pipeline {

class ForwardRunner : public StageRunner {
 public:
  explicit ForwardRunner(Stage& stage) : stage_(stage) {}
  schedule::Stage number() const override { return stage_.number(); }
  StageSharding* sharding() override { return stage_.sharding(); }
  void begin(int) override {}
  Message backward(int, const Message&) override { throw InternalError("a backward pass in a forward-only table"); }
  Message backward_input(int microbatch, const Message& gradient) override { return backward(microbatch, gradient); }
  void weight_gradients(int microbatch) override { backward(microbatch, {}); }
  void end() override {}

 protected:
  Stage& stage() { return stage_; }
  bool last() { return stage_.model().modules().head; }

 private:
  Stage& stage_;
};

/// Losses of microbatches.
class EvaluationRunner : public ForwardRunner {
 public:
  struct Run {
    const std::vector<model::Microbatch>& data;
    const std::vector<double>& loss_scales;
    std::vector<at::Tensor> losses = {};  ///< on the last stage
    bool heads_apart = false;  ///< the last stage returns what its head would get (StageModel::head_inputs) as losses
  };
  using ForwardRunner::ForwardRunner;
  void use(Run& run) { run_ = &run; }
  void begin(int microbatches) override;
  Message forward(int microbatch, const Message& input) override;

 private:
  Run* run_ = nullptr;
};

/// Logits of one token of a single microbatch.
class LogitsRunner : public ForwardRunner {
 public:
  struct Run {
    const model::Microbatch& data;
    std::int64_t token;
    at::Tensor logits = {};  ///< on the last stage
  };
  using ForwardRunner::ForwardRunner;
  void use(Run& run) { run_ = &run; }
  Message forward(int microbatch, const Message& input) override;

 private:
  Run* run_ = nullptr;
};

}  // namespace automodel::pipeline
