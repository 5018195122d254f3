// The objects of one rank, built from the plan: the only place where the forms of parallelism are combined.
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
#include "pipeline/pipeline.h"
#include "plan/training_plan.h"
#include "train/microbatches.h"

namespace automodel::train {

/// The groups that this rank is a member of. Operations of a group of one rank do nothing.
struct Groups {
  std::shared_ptr<comm::Communicator> pipeline;
  std::shared_ptr<comm::Communicator> tensor;
  std::shared_ptr<comm::Communicator>
      shared_heads;  ///< tp ranks that hold the same key-value heads; null: each has its own
  std::shared_ptr<comm::Communicator> context;
  std::shared_ptr<comm::Communicator> context_heads, context_keys;  ///< the two levels of context parallelism
  std::shared_ptr<comm::Communicator> experts;                      ///< ranks that share a layer's experts
  std::shared_ptr<comm::Communicator> tokens;  ///< ranks that hold different tokens of the same microbatch
  parallel::ReduceGroups dense, expert;
  std::shared_ptr<comm::Communicator> tied;  ///< ranks of the first and last stage; null if nothing is tied across them
};

/// This rank's mesh coordinates.
struct Place {
  int pp = 0, dp = 0, cp = 0, tp = 0;
  int dp_size = 1, cp_size = 1, tp_size = 1;
  parallel::ExpertPlace expert = {};
  parallel::ContextPlace context() const { return {cp_size, cp}; }
};

/// Options for tests, except for the last two.
struct RuntimeOptions {
  /// Offload activations to separate host memory even if the device is the CPU.
  bool offload_on_cpu = false;
  /// Captures microbatches (plan::CapturePlan::captured) on any device. Empty: on GPUs, the CUDA half's is used.
  ops::MakeCapture capture = {};
  bool forward_only = false;  ///< a teacher: there is no optimizer
  /// What the tower's cached part gave (feature_cache.h), where the plan has one.
  std::shared_ptr<const data::FeatureStore> features = {};
  bool saves = true;  ///< keep what saved models need of weights that no stage has
};

/// Elements of a cached weight that this rank keeps in host memory, in the type of computation: no stage has it, but a
/// saved model is whole.
struct KeptPart {
  arch::Parameter info;
  std::int64_t first;
  at::Tensor values;
};

/// Whether tensor-parallel rank `tp` is the one that counts and saves its part of a weight, among the ranks with the
/// same part. Not for experts, which have a mesh of their own.
bool first_of_its_kind(const model::Weight& weight, int tp);

/// One stage: its model, its storage and the adapter to the schedule's actions.
class LocalStage;

/// Owns all compute objects. Not movable: its parts refer to each other.
class Runtime {
 public:
  /// Creates the objects and loads the weights from `source`. `plan` and `world` must outlive this.
  Runtime(const plan::TrainingPlan& plan, comm::World& world, const parallel::WeightSource& source,
          RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const plan::TrainingPlan& plan() const { return plan_; }
  comm::World& world() { return world_; }
  const Place& place() const { return place_; }
  const Groups& groups() const { return groups_; }
  pipeline::Pipeline& pipeline() { return *pipeline_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  std::vector<LocalStage*> stages();
  /// What make_microbatches() is to do with pictures on this rank.
  PictureInput picture_input() const;
  /// Each element is on one rank. None beside adapters, which are all that is saved.
  const std::vector<KeptPart>& kept_parts() const { return kept_parts_; }
  /// Null if no activations are offloaded.
  const ops::ActivationOffload* offload() const { return offload_.get(); }

  /// Number of ranks that the tokens of the residual stream are split over: the tensor-parallel size with sequence
  /// parallelism, otherwise 1.
  int token_shares() const { return plan_.tensor.sequence_parallel ? place_.tp_size : 1; }
  /// Sets the sequence lengths from now on: one number for all microbatches, or one for each.
  void set_lengths(std::vector<std::int64_t> lengths);
  /// Prepares for pipeline::Pipeline::logits with one text of `tokens` tokens, until set_lengths() is called.
  void set_generation(std::int64_t tokens);
  /// If the plan has a teacher: runs it on the microbatches of one run of the pipeline, whose lengths were set, and
  /// stores in each what its head gets. Collective.
  void teach(std::vector<model::Microbatch>& microbatches);
  void begin_step();
  /// Waits for all reductions, then sums partial gradients over tensor-parallel ranks and over tied embeddings.
  void finish_gradients();
  /// Call with the optimizer step. Raises the router's correction bias by ExpertPlan::router_bias_step for each expert
  /// that had fewer tokens than its layer's mean in the global batch, and lowers it for each that had more. Source:
  /// NeMo AutoModel, Gate.update_bias.
  void move_router_biases();
  /// Call after the optimizer step: updates the compute weights from the master weights.
  void publish();

 private:
  void make_groups();
  /// The part of a parameter that the rank at `place` holds, before data-parallel sharding.
  model::Placement placement(const arch::Parameter& parameter, const Place& place) const;
  void make_seams();
  model::StageOptions stage_options() const;
  void make_stages(const parallel::WeightSource& source);
  std::unique_ptr<ops::WorkCapture> make_capture() const;
  void make_optimizer();
  void make_teacher();
  void keep_cached(const parallel::WeightSource& source);
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
  std::unique_ptr<pipeline::Pipeline> pipeline_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<std::int64_t> lengths_ = {};
  std::vector<KeptPart> kept_parts_ = {};
  std::unique_ptr<Runtime> teacher_;  ///< null without one
};

class LocalStage : public pipeline::StageSharding {
 public:
  LocalStage(schedule::Stage number, const plan::ModelChoice& choice, model::StageModules modules,
             model::StageOptions options, const parallel::StorageOptions& storage, const Groups& groups);

  model::StageModel& model() { return model_; }
  parallel::DataParallel& data_parallel() { return data_parallel_; }
  pipeline::Stage& stage() { return stage_; }
  /// Defers the head's weight gradients to the end of a run, for up to `limit` microbatches (0: all).
  void defer_head(int limit);
  /// Divisor of gradients (scale_grads_in_schedule); 0: none. Applied by REDUCE_GRAD before it reduces, or by finish()
  /// if each microbatch is reduced separately.
  void set_divisor(double divisor) { divisor_ = divisor; }

  void unshard() override { data_parallel_.unshard(); }
  void reshard() override { data_parallel_.reshard(); }
  void reduce(bool last) override;
  void last_backward() override;
  void settle() override { data_parallel_.settle(); }
  void weight_gradients_begin() override { data_parallel_.weight_gradients_begin(); }
  void weight_gradients_done() override { data_parallel_.weight_gradients_done(); }
  /// On return all gradients are reduced and divided.
  void finish();

 private:
  model::StageModel model_;
  parallel::DataParallel data_parallel_;
  pipeline::Stage stage_;
  double divisor_ = 0;
  ops::WeightGradients waiting_head_ = {};
};

}  // namespace automodel::train
