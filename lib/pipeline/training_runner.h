// A stage in training: forward and backward of microbatches, whose losses the last stage collects.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/blocks.h"
#include "model/stage_model.h"
#include "pipeline/captured_microbatches.h"
#include "pipeline/stage.h"
#include "pipeline/stage_runner.h"

namespace automodel::pipeline {

/// One run of a schedule: a gradient accumulation step.
struct RunOptions {
  /// Scale of each microbatch's summed token losses; usually 1 / (label tokens of the global batch) for all.
  std::vector<double> loss_scales = {};
  /// Gradient of the loss that backward passes start from: 1, or the loss scale of float16 training.
  double seed = 1;
  /// This is the last run before the optimizer step: REDUCE_GRAD reduces only then.
  bool last_run = true;
  /// What the layers recompute in the backward pass, by the number of the forward pass in this run on this rank.
  std::function<plan::Recompute(int forward)> recompute = {};
  /// Full backward passes send the gradient of their input before they compute weight gradients.
  bool delay_weight_gradients = false;
};

/// What the stages of a rank share in one run.
struct TrainingRun {
  const std::vector<model::Microbatch>& data;
  const RunOptions& options;
  int forwards = 0;                     ///< forward passes so far
  std::vector<at::Tensor> losses = {};  ///< on the last stage, one per microbatch
};

/// Side values of messages are the statistics of routers, which a microbatch collects over all stages: sums so far with
/// the activations, the totals with the gradients.
class TrainingRunner : public StageRunner {
 public:
  /// `stage` must outlive this. `device`: where losses are.
  TrainingRunner(Stage& stage, at::Device device) : stage_(stage), device_(device) {}
  /// Call before the executor runs; the run must outlive that.
  void use(TrainingRun& run) { run_ = &run; }

  schedule::Stage number() const override { return stage_.number(); }
  StageSharding* sharding() override { return stage_.sharding(); }
  void begin(int microbatches) override;
  Message forward(int microbatch, const Message& input) override;
  Message backward(int microbatch, const Message& gradient) override;
  Message backward_input(int microbatch, const Message& gradient) override;
  void weight_gradients(int microbatch) override { stage_.backward_weight(microbatch); }
  void end() override;

 protected:
  /// A microbatch about to be run forward.
  struct Pass {
    model::Microbatch data;
    model::ForwardOptions options;
  };
  Pass next_pass(int microbatch, const Message& input);
  Message run_forward(int microbatch, const Pass& pass, const Message& input);
  TrainingRun& run() { return *run_; }
  Stage& stage() { return stage_; }

 private:
  /// The gradient that a backward pass starts from: the one received or, on the last stage, that of the loss.
  at::Tensor start_of(const Message& gradient) const;
  /// Statistics over all stages, which the last stage knows and the gradients carry back; undefined without routers.
  at::Tensor totals_of(int microbatch, const Message& gradient);

  Stage& stage_;
  at::Device device_;
  TrainingRun* run_ = nullptr;
  std::map<int, std::shared_ptr<model::RouterStatistics>> routers_ = {};  ///< by microbatch, from forward to backward
};

/// A stage that is the whole model: forward and backward of a microbatch run together in forward(), as captured work
/// where possible.
class CapturedRunner : public TrainingRunner {
 public:
  CapturedRunner(Stage& stage, at::Device device, std::unique_ptr<ops::WorkCapture> capture)
      : TrainingRunner(stage, device), captured_(stage, std::move(capture)) {}
  const CapturedMicrobatches& captured() const { return captured_; }

  void begin(int microbatches) override;
  Message forward(int microbatch, const Message& input) override;
  Message backward(int microbatch, const Message& gradient) override;
  Message backward_input(int microbatch, const Message& gradient) override;

 private:
  CapturedMicrobatches captured_;
  std::set<int> done_ = {};  ///< microbatches whose backward pass ran with the forward pass
};

}  // namespace automodel::pipeline
