// The objects of one rank, built from the plan: the only place where the parallelisms meet.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"
#include "model/stage_model.h"
#include "ops/captured_work.h"
#include "ops/offload.h"
#include "optim/optimizer.h"
#include "parallel/context/context_parallel.h"
#include "parallel/context/layout.h"
#include "parallel/data/data_parallel.h"
#include "parallel/expert/expert_parallel.h"
#include "parallel/tensor/tensor_parallel.h"
#include "pipeline/executor.h"
#include "plan/training_plan.h"

namespace automodel::train {

/// The groups that this rank is in. A group of one rank exists and does nothing.
struct Groups {
  std::shared_ptr<comm::Communicator> pipeline;
  std::shared_ptr<comm::Communicator> tensor;
  std::shared_ptr<comm::Communicator>
      shared_heads;  ///< tp ranks that hold the same key-value heads; null: each has its own
  std::shared_ptr<comm::Communicator> context;
  std::shared_ptr<comm::Communicator> context_heads, context_keys;  ///< the two levels of context parallelism
  std::shared_ptr<comm::Communicator> experts;                      ///< ranks that share a layer's experts
  std::shared_ptr<comm::Communicator> tokens;  ///< ranks with different tokens of the same microbatch
  parallel::ReduceGroups dense, expert;
  std::shared_ptr<comm::Communicator> tied;  ///< first and last stage's ranks; null where nothing is tied across them
};

/// Where this rank stands on the mesh.
struct Place {
  int pp = 0, dp = 0, cp = 0, tp = 0;
  int dp_size = 1, cp_size = 1, tp_size = 1;
  parallel::ExpertPlace expert = {};
  parallel::ContextPlace context() const { return {cp_size, cp}; }
};

/// Options for tests.
struct RuntimeOptions {
  /// Offload activations to separate host memory even if the device is the CPU.
  bool offload_on_cpu = false;
  /// Captures microbatches (plan::Levers::captured) on any device; empty: the program's CUDA half does, on GPUs.
  ops::MakeCapture capture = {};
};

/// True on the tensor-parallel rank that counts and saves replicated values; not for experts, which have their own
/// grid.
bool first_of_its_kind(const model::Weight& weight, int tp);

/// One stage: model, storage, adapter to the schedule's actions.
class LocalStage;

/// Owns all compute objects. Not movable: its parts refer to each other.
class Runtime {
 public:
  /// Makes the objects and fills the weights from `source`. The plan and the world outlive this.
  Runtime(const plan::TrainingPlan& plan, comm::World& world, const parallel::WeightSource& source,
          RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const plan::TrainingPlan& plan() const { return plan_; }
  comm::World& world() { return world_; }
  const Place& place() const { return place_; }
  const Groups& groups() const { return groups_; }
  pipeline::Executor& executor() { return *executor_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  std::vector<LocalStage*> stages();
  /// Null where no activations are offloaded.
  const ops::ActivationOffload* offload() const { return offload_.get(); }

  /// The number of ranks that share the tokens of the residual stream: those of a tensor-parallel group with sequence
  /// parallelism.
  int token_shares() const { return plan_.tensor.sequence_parallel ? place_.tp_size : 1; }
  /// Microbatches of `length` tokens from now on.
  void set_length(std::int64_t length);
  /// Prepares for a single text, of which `tokens` are computed (pipeline::Executor::logits); until set_length().
  void set_generation(std::int64_t tokens);
  void begin_step();
  /// Waits for all reductions; sums partial gradients of tensor-parallel ranks and of tied embeddings.
  void finish_gradients();
  /// With the optimizer's step: the correction bias of every router goes a step up for each expert that had fewer
  /// tokens than the mean of its layer in the global batch, down for each that had more (NeMo AutoModel,
  /// Gate.update_bias).
  void move_router_biases();
  /// After the optimizer: updates the compute values from the masters.
  void publish();

 private:
  void make_groups();
  /// What the rank at `place` holds of a parameter.
  model::Placement placement(const arch::Parameter& parameter, const Place& place) const;
  void make_seams();
  model::StageOptions stage_options() const;
  void make_stages(const parallel::WeightSource& source);
  void make_capture();
  void make_optimizer();
  void add_matrices(optim::Target& target, const parallel::UnitStorage& storage) const;
  void sum_partial_gradients();
  void sum_over(comm::Communicator& group, const std::function<bool(const model::Weight&)>& chosen);
  void sum_tied_gradients();

  const plan::TrainingPlan& plan_;
  comm::World& world_;
  RuntimeOptions options_;
  Place place_ = {};
  Groups groups_ = {};
  std::unique_ptr<parallel::TensorParallel> tensor_;    ///< null without tensor parallelism
  std::unique_ptr<parallel::ContextParallel> context_;  ///< null without context parallelism
  std::unique_ptr<parallel::ExpertParallel> experts_;   ///< null for a model without experts
  std::unique_ptr<ops::ActivationOffload> offload_;
  std::vector<std::unique_ptr<LocalStage>> stages_;
  std::unique_ptr<pipeline::Executor> executor_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::int64_t length_ = -1;
};

class LocalStage : public pipeline::StageSharding {
 public:
  LocalStage(schedule::Stage number, const plan::ModelChoice& choice, model::StageModules modules,
             model::StageOptions options, const parallel::DataParallelOptions& sharding, const Groups& groups);

  model::StageModel& model() { return model_; }
  parallel::DataParallel& data_parallel() { return data_parallel_; }
  pipeline::Stage& stage() { return stage_; }
  /// Defers the head's weight gradients to the end of an accumulation step, for this many microbatches (0: all).
  void defer_head(int limit);
  /// Divisor of gradients (scale_grads_in_schedule); 0: none. Applied by REDUCE_GRAD before it reduces, or by finish()
  /// if each microbatch was reduced separately.
  void set_divisor(double divisor) { divisor_ = divisor; }

  void unshard() override { data_parallel_.unshard(); }
  void reshard() override { data_parallel_.reshard(); }
  void reduce(bool last) override;
  void last_backward() override;
  void settle() override { data_parallel_.settle(); }
  void weight_gradients_begin() override { data_parallel_.weight_gradients_begin(); }
  void weight_gradients_done() override { data_parallel_.weight_gradients_done(); }
  /// All gradients are reduced when this returns, and divided.
  void finish();

 private:
  model::StageModel model_;
  parallel::DataParallel data_parallel_;
  pipeline::Stage stage_;
  double divisor_ = 0;
  ops::WeightGradients waiting_head_ = {};
};

}  // namespace automodel::train
