// The passes of a rank's stages: training, evaluation and generation. Each is a table, a runner for every stage, and
// the executor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "pipeline/executor.h"
#include "pipeline/forward_runners.h"
#include "pipeline/stage.h"
#include "pipeline/training_runner.h"

namespace automodel::pipeline {

/// Sum of microbatch losses, accumulated on the device that computed them; only value() makes the host wait.
class LossSum {
 public:
  LossSum() = default;
  explicit LossSum(const std::vector<at::Tensor>& losses);
  /// `loss` has one element.
  void add(const at::Tensor& loss);
  void add(const LossSum& other);
  /// 0 if no loss was added.
  double value() const;

 private:
  at::Tensor sum_;  ///< float64
};

class Pipeline {
 public:
  /// `stages` are this rank's, in the order of placement.stages_of. `group` is the pipeline group (null: one rank).
  /// `evaluation` holds no backward passes. `capture`: forward and backward of a training microbatch run together, as
  /// captured work where possible, which takes a single stage; null: they do not. Stages and group must outlive this.
  Pipeline(Table training, Table evaluation, int rank, comm::Communicator* group, const std::vector<Stage*>& stages,
           at::Device device, std::unique_ptr<ops::WorkCapture> capture = {});

  /// Sets the shape of messages between stages from now on (new sequence lengths).
  void set_message(const MessageShape& shape);
  /// Watches are called in the order in which they were added.
  void add_watch(const Watch& watch);
  /// Null if microbatches are not captured.
  const CapturedMicrobatches* captured() const { return captured_ == nullptr ? nullptr : &captured_->captured(); }

  /// Forward and backward of the microbatches, at most as many as the table has. Returns the sum of their scaled losses
  /// on the rank of the last stage, no losses elsewhere.
  LossSum run(const std::vector<model::Microbatch>& microbatches, const RunOptions& options);
  /// Forward only, of at most as many microbatches as the table has.
  LossSum evaluate(const std::vector<model::Microbatch>& microbatches, const std::vector<double>& loss_scales);
  /// The same without the head: what it would get (StageModel::head_inputs), by microbatch, on the rank of the last
  /// stage; empty elsewhere.
  std::vector<at::Tensor> head_inputs(const std::vector<model::Microbatch>& microbatches);
  /// The most microbatches that evaluate() and head_inputs() take.
  int most_microbatches() const { return most_microbatches_; }
  /// The logits [batch, 1, vocabulary] of token `token` of one microbatch, on the rank of the last stage; undefined
  /// elsewhere.
  at::Tensor logits(const model::Microbatch& microbatch, std::int64_t token);

  /// Forward passes that this rank runs before its first backward pass.
  int in_flight() const { return training_->in_flight(); }

 private:
  std::vector<std::unique_ptr<TrainingRunner>> training_runners_ = {};
  std::vector<std::unique_ptr<EvaluationRunner>> evaluation_runners_ = {};
  std::vector<std::unique_ptr<LogitsRunner>> logits_runners_ = {};
  int most_microbatches_ = 0;
  CapturedRunner* captured_ = nullptr;  ///< the training runner, if microbatches are captured
  std::unique_ptr<Executor> training_, evaluation_, logits_;
};

}  // namespace automodel::pipeline
