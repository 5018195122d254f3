// The plan: everything that follows from a recipe and a number of ranks, before anything is allocated. One value,
// printed by `automodel plan` and executed by every rank of `automodel train`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/tensor_plan.h"
#include "base/dtype.h"
#include "config/recipe.h"
#include "mesh/device_mesh.h"
#include "plan/adapter_choice.h"
#include "plan/context_choice.h"
#include "plan/execution_choice.h"
#include "plan/feature_choice.h"
#include "plan/frozen_part.h"
#include "plan/model_choice.h"
#include "plan/model_split.h"
#include "plan/optimizer_plan.h"
#include "plan/sharding.h"
#include "plan/stage_shapes.h"
#include "plan/tensor_shares.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/simulate.h"

namespace automodel::plan {

class Costs;

/// How the sequences of a step are distributed.
struct BatchPlan {
  int global = 1;                   ///< sequences per optimizer step
  int local = 1;                    ///< sequences per gradient accumulation step on a data-parallel rank
  int runs = 1;                     ///< passes through the pipeline per step
  int merged = 1;                   ///< gradient accumulation steps that one pass takes together
  int microbatch = 1;               ///< sequences
  int microbatches = 1;             ///< per pass
  std::int64_t length = 0;          ///< tokens per sequence; 0 if the recipe's data does not specify it
  std::int64_t assumed_length = 0;  ///< used by estimates if `length` is 0
  std::int64_t multiple = 1;        ///< batches are padded to a multiple of this many tokens
  /// Tokens per sequence of the longest validation set that specifies it; 0: as in training.
  std::int64_t validation_length = 0;
  std::int64_t planned_length() const { return length > 0 ? length : assumed_length; }
  std::int64_t tokens() const { return global * planned_length(); }
  /// Tokens of the shortest sequence, in training or validation; 0: unknown.
  std::int64_t shortest() const { return validation_length > 0 ? std::min(length, validation_length) : length; }
};

/// Dtypes of parameters, gradients, moments and messages.
struct TypePlan {
  DType compute = DType::kFloat32;
  DType stored = DType::kFloat32;  ///< the recipe's dtype of the weights, which other stacks train in
  DType master = DType::kFloat32;
  DType gradient = DType::kFloat32;
  DType reduce = DType::kFloat32;
  DType first_moment = DType::kFloat32;  ///< Adam's; also SGD's and Muon's momentum
  DType second_moment = DType::kFloat32;
  DType message = DType::kFloat32;   ///< between stages
  bool cast_inputs = true;           ///< a stage casts what it receives to `compute`; else it computes in `message`
  std::optional<DType> output = {};  ///< of the logits before the loss, if not `compute`
};

struct CommunicationPlan {
  config::Backend backend = config::Backend::kAuto;
  double timeout_minutes = 10;
};

/// Source of a new run's initial weights.
struct WeightOrigin {
  std::optional<std::string> folder = {};  ///< empty: initialised from the seed
  bool zero = false;        ///< leave weights zero, to be loaded from a checkpoint; does not apply to adapters
  std::uint64_t seed = 42;  ///< of weights, data order and dropout
};

struct StagePlan {
  int stage = 0;
  int pp_rank = 0;
  StagePart part = {};
  std::int64_t adapters = 0;   ///< elements of adapters
  double active_adapters = 0;  ///< elements active per token, without a vision tower's
  int mtp_layers = 0;  ///< multi-token-prediction layers that a layout puts on this stage; planned but not trained
  double flops = 0;    ///< of a microbatch's forward pass
  StageIo io = {};
};

struct PipelinePlan {
  std::string name = {};  ///< name of the schedule; "CSV" for a file
  schedule::PipelineSchedule schedule = {};
  std::vector<StagePlan> stages = {};
  schedule::Timeline timeline = {};  ///< with durations proportional to the stages' FLOPs
  std::string merged = {};           ///< which accumulation steps share a pass, or why none do; empty: there is one
};

struct TrainingPlan {
  std::string recipe_path = {};
  mesh::DeviceMesh mesh;
  BatchPlan batch = {};
  TypePlan types = {};
  Sharding sharding = {};
  Execution execution = {};
  CommunicationPlan communication = {};
  WeightOrigin weights = {};
  std::int64_t first_step = 0;  ///< step_scheduler.start_step
  OptimizerPlan optimizer = {};
  /// The recipe sections that take effect as written, as printed by `plan --json`.
  config::Value settings = {};
  std::optional<ModelChoice> model = {};             ///< empty if the model's sizes are unknown
  std::optional<AdapterPlan> adapters = {};          ///< empty if the model's own weights are trained
  std::optional<FrozenPart> frozen = {};             ///< empty if no weights are frozen
  std::optional<FeaturePlan> features = {};          ///< empty if no vision tower is frozen
  std::optional<PipelinePlan> pipeline = {};         ///< empty only if `model` is
  std::shared_ptr<const TrainingPlan> teacher = {};  ///< of the model that this one learns from, all frozen; or null
  arch::TensorPlan tensor = {};                      ///< styles of modules; empty without tensor parallelism
  TensorShares shares = {};                          ///< the resulting rank-local sizes; empty without a model
  ContextPlan context = {};
  config::Stack stack = config::Stack::kOwn;  ///< software stack that GPU estimates assume
  int expert_tensor = 1;                      ///< ranks that hold parts of the same experts
  RecomputeModules recompute_modules = {};
  std::optional<int> zero_level = {};  ///< Megatron-FSDP's zero_dp_strategy, normalised
  bool pipelined = false;              ///< pp_size > 1: the recipe's pipeline section applies
  bool cuda = false;
  Diagnostics warnings = {};
  std::vector<config::IgnoredKey> ignored = {};
  std::vector<config::IgnoredKey> unsupported = {};  ///< keys that prevent training
};

struct PlanRequest {
  std::optional<int> world_size = {};  ///< empty: the product of the recipe's sizes
  bool training = false;               ///< reject what can be planned but not trained
  bool cuda_available = false;
  std::optional<std::int64_t> longest_row = {};  ///< tokens; used if the recipe does not specify them
  std::optional<std::int64_t> longest_validation_row = {};
  FeatureRequest features = {};
};

struct PlanResult {
  std::optional<TrainingPlan> plan = {};
  Diagnostics problems = {};  ///< empty if there is a plan
  Diagnostics warnings = {};
};

/// Plans the recipe, or reports everything that prevents it. Commands use estimate::make_plan(), which adds cost
/// estimates.
PlanResult make_plan(const config::LoadedRecipe& recipe, const PlanRequest& request, Costs& costs);

/// Width of the messages between stages, behind each but the last: that of the residual stream, and as much again for
/// each of a tower's outputs that later layers add (arch::VisionSpec::deep_layers). One stage: the residual stream's.
std::vector<std::int64_t> message_widths(const TrainingPlan& plan);
std::int64_t widest_message(const TrainingPlan& plan);

/// All tensors of the model: parameters, buffers and adapter parameters.
std::vector<arch::Parameter> all_parameters(const TrainingPlan& plan);

/// A hash over every fact of the plan, equal on two ranks iff (barring collisions) they made the same plan.
std::uint64_t fingerprint(const TrainingPlan& plan);

}  // namespace automodel::plan
