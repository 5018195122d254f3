// `distributed:` how ranks share the work: mesh sizes, the data-parallel strategy with its options, and the pipeline.
// Names, defaults and semantics follow NeMo AutoModel (FSDP2Config, MegatronFSDPConfig, DDPConfig, PipelineConfig).
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/diagnostic.h"
#include "base/dtype.h"
#include "config/backend.h"
#include "config/python_class.h"
#include "config/types.h"
#include "plan/values/activations.h"

namespace automodel::config {

template <>
struct EnumNames<plan::Recompute> {
  using E = plan::Recompute;
  static constexpr std::array names = {
      EnumName<E>{"false", E::kNone}, EnumName<E>{"full", E::kFull}, EnumName<E>{"selective", E::kSelective},
      EnumName<E>{"true", E::kFull},  EnumName<E>{"on", E::kFull},   EnumName<E>{"yes", E::kFull},
      EnumName<E>{"off", E::kNone},   EnumName<E>{"no", E::kNone},   EnumName<E>{"none", E::kNone},
      EnumName<E>{"null", E::kNone},
  };
};

/// Which towers of a model recompute their activations. Models here have only a language tower.
struct CheckpointingScope {
  std::vector<std::string> scopes = {"all"};
  bool operator==(const CheckpointingScope&) const = default;
  bool covers_language() const;
  static TypeInfo config_type();
};

enum class Rounding { kUp, kDown };
template <>
struct EnumNames<Rounding> {
  static constexpr std::array names = {EnumName<Rounding>{"up", Rounding::kUp},
                                       EnumName<Rounding>{"down", Rounding::kDown}};
};

/// `layers_per_stage`: a count, a count per stage, `auto`, or null.
struct LayersPerStage {
  std::optional<int> count = std::nullopt;
  bool automatic = false;
  std::vector<int> counts = {};  ///< number of layers of every stage (not in NeMo AutoModel)
  bool operator==(const LayersPerStage&) const = default;
  static TypeInfo config_type();
};

/// Whether the accumulation steps of an optimizer step share one run of the pipeline.
enum class Merging { kAuto, kAlways, kNever };
template <>
struct EnumNames<Merging> {
  static constexpr std::array names = {EnumName<Merging>{"auto", Merging::kAuto},
                                       EnumName<Merging>{"true", Merging::kAlways},
                                       EnumName<Merging>{"false", Merging::kNever}};
};

/// Options of `pp_schedule: searched`.
struct ScheduleSearch {
  using IsSection = void;
  Field<std::optional<std::string>> memory_limit{"memory_limit", std::nullopt,
                                                 "Memory per rank that the schedule may need in all, for example "
                                                 "60GiB; null: 90 % of the device's, or, where that "
                                                 "is unknown, what the fastest named schedule needs."};
};

/// NeMo AutoModel's PipelineConfig.
struct PipelineConfig {
  using IsSection = void;
  Field<std::optional<std::string>> pp_schedule{
      "pp_schedule", "1f1b",
      "Pipeline schedule, by PyTorch's name or the names that NeMo AutoModel's documentation uses; `searched`: the "
      "fastest that a search finds for this plan's estimated times and memory."};
  Field<std::optional<ScheduleSearch>> search{"search", std::nullopt, "Options of `pp_schedule: searched`."};
  Field<std::optional<std::string>> pp_schedule_csv{"pp_schedule_csv", std::nullopt,
                                                    "Read the schedule from this CSV file (PyTorch's format) instead."};
  Field<int> pp_microbatch_size{"pp_microbatch_size", 1, "Sequences per microbatch.", at_least<1>};
  Field<int> pp_batch_size{"pp_batch_size", 1, "Sequences per gradient accumulation step.",
                           Ignored{"it is always step_scheduler.local_batch_size"}};
  Field<LayersPerStage> layers_per_stage{
      "layers_per_stage",
      {},
      "Layers per pipeline stage: a number (which determines the number of stages), `auto` (stages balanced by cost), "
      "a list of every stage's number of layers, or null (one or two stages per rank, depending on the schedule)."};
  Field<std::optional<Rounding>> round_virtual_stages_to_pp_multiple{
      "round_virtual_stages_to_pp_multiple", std::nullopt,
      "Round the number of stages that follows from layers_per_stage up or down to a multiple of pp_size."};
  Field<std::optional<std::vector<std::vector<std::string>>>> module_fqns_per_model_part{
      "module_fqns_per_model_part", std::nullopt,
      "The modules of every stage, by fully qualified name, instead of an even split."};
  Field<std::optional<std::string>> pipeline_model_parallel_layout{
      "pipeline_model_parallel_layout", std::nullopt,
      "Megatron Core's layout of the stages, for example Et*3|(tt|)*29,t|L: E embedding, t layer, L loss, | between "
      "stages."};
  Field<bool> patch_inner_model{"patch_inner_model", true, "Replace the forward of the inner model.",
                                Ignored{"a stage is built from its own modules; no forward is replaced"}};
  Field<bool> patch_causal_lm_model{"patch_causal_lm_model", true, "Replace the forward of the language model.",
                                    Ignored{"a stage is built from its own modules; no forward is replaced"}};
  Field<bool> patch_stage_backward_maybe_with_nosync{
      "patch_stage_backward_maybe_with_nosync", false, "Skip gradient synchronisation inside PyTorch's stage.",
      Ignored{"gradients are reduced by the schedule's own REDUCE_GRAD action"}};
  Field<Merging> merge_accumulation{
      "merge_accumulation", Merging::kAuto,
      "Run the microbatches of all gradient accumulation steps through one schedule, which fills and drains the "
      "pipeline once per optimizer step; auto: where it is faster and fits in memory."};
  Field<std::optional<DType>> dtype{"dtype", std::nullopt,
                                    "Dtype of activations sent between stages; null: the dtype they are computed in."};
  Field<bool> scale_grads_in_schedule{"scale_grads_in_schedule", false,
                                      "Use the mean over microbatches of each one's mean loss (gradients are divided "
                                      "at the reduction) instead of the mean over all label tokens."};
  Field<Value> loss_fn{"loss_fn", nullptr, "Set at run time in Python.",
                       Ignored{"the loss is the section loss_fn at the top of the recipe"}};
  Field<std::optional<int>> pp_seq_len{
      "pp_seq_len", std::nullopt, "Sequence length that stages are planned for; null: from the data.", at_least<1>};
  Field<bool> pp_recv_buffer_pool{"pp_recv_buffer_pool", false, "Bound the receive buffers.",
                                  Ignored{"receive buffers always come from a pool sized by the schedule"}};
  Field<int> pp_recv_buffer_pool_slack{"pp_recv_buffer_pool_slack", 2, "Spare buffers of that pool.",
                                       Ignored{"the pool has as many buffers as the schedule is proved to need"}};
};

enum class PrecisionClass { kMixed };
template <>
struct EnumNames<PrecisionClass> {
  static constexpr std::array names = {EnumName<PrecisionClass>{"MixedPrecisionPolicy", PrecisionClass::kMixed}};
};

struct MixedPrecisionPolicy {
  using IsSection = void;
  Field<PythonClass<PrecisionClass>> target{"_target_", {}, "torch.distributed.fsdp.MixedPrecisionPolicy"};
  Field<std::optional<DType>> param_dtype{"param_dtype", std::nullopt, "Dtype of the parameters used in computation."};
  Field<std::optional<DType>> reduce_dtype{"reduce_dtype", std::nullopt, "Dtype in which gradients are reduced."};
  Field<std::optional<DType>> output_dtype{"output_dtype", std::nullopt,
                                           "Dtype to which a stage's output is cast: messages between stages, logits."};
  Field<bool> cast_forward_inputs{
      "cast_forward_inputs", true,
      "Cast a stage's inputs to param_dtype; if false, its residual stream keeps the dtype of the message."};

  /// NeMo AutoModel's default: bfloat16 parameters, float32 reduction.
  static MixedPrecisionPolicy standard();
};

enum class OffloadClass { kCpu, kNone };
template <>
struct EnumNames<OffloadClass> {
  static constexpr std::array names = {EnumName<OffloadClass>{"CPUOffloadPolicy", OffloadClass::kCpu},
                                       EnumName<OffloadClass>{"OffloadPolicy", OffloadClass::kNone}};
};

struct OffloadPolicy {
  using IsSection = void;
  Field<PythonClass<OffloadClass>> target{
      "_target_",
      {},
      "torch.distributed.fsdp.CPUOffloadPolicy, or its base class OffloadPolicy, which offloads nothing."};
  Field<bool> pin_memory{"pin_memory", true, "Page-locked host memory.",
                         Ignored{"offloaded buffers are in pageable memory"}};
};

struct FrameSharding {
  using IsSection = void;
  Field<bool> enabled{"enabled", false, "Shard frames of a vision tower."};
  Field<std::vector<std::string>> mesh_dims{"mesh_dims", {"cp"}, "Axes to shard over."};
  Field<int> min_tokens{"min_tokens", 2048, "Smallest number of tokens."};
  Field<int> min_frames{"min_frames", 32, "Smallest number of frames."};
  Field<int> min_local_patch_rows{"min_local_patch_rows", 96, "Smallest number of rows on a rank."};
  Field<Value> cost_alpha{"cost_alpha", "auto", "Cost model."};
};
struct VisionConfig {
  using IsSection = void;
  Field<FrameSharding> frame_sharding{"frame_sharding", {}, "Vision frames over context-parallel ranks."};
};
enum class FrozenSharding { kRoot, kPerLayer, kReplicate };
template <>
struct EnumNames<FrozenSharding> {
  using E = FrozenSharding;
  static constexpr std::array names = {EnumName<E>{"root", E::kRoot}, EnumName<E>{"per_layer", E::kPerLayer},
                                       EnumName<E>{"replicate", E::kReplicate}};
};
struct MultimodalConfig {
  using IsSection = void;
  Field<FrozenSharding> frozen_sharding{"frozen_sharding", FrozenSharding::kRoot, "Sharding of frozen towers."};
  Field<VisionConfig> vision{"vision", {}, "Vision tower."};
};

/// NeMo AutoModel's FSDP2Config.
struct FSDP2Config {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("fsdp2")};
  static constexpr std::string_view kDoc =
      "Parameters, gradients and optimizer states sharded in units of decoder layers.";
  static constexpr bool kImplied = true;
  Field<bool> sequence_parallel{"sequence_parallel", false,
                                "Shard norms and residuals over tp ranks along the sequence."};
  Field<Value> tp_plan{"tp_plan|tp_shard_plan", nullptr,
                       "Tensor-parallel style of every module (a mapping of name patterns to styles), or the name of a "
                       "plan; null: the family's own."};
  Field<bool> patch_is_packed_sequence{
      "patch_is_packed_sequence", false, "Patch transformers.",
      Ignored{"packed sequences are known from the data, without reading from the device"}};
  Field<std::optional<MixedPrecisionPolicy>> mp_policy{
      "mp_policy", MixedPrecisionPolicy::standard(),
      "Dtypes of parameters, reduction and outputs. If not set: on CUDA {param_dtype: bfloat16, reduce_dtype: float32, "
      "cast_forward_inputs: false}, on a CPU the model's own dtype. A section that is written has the defaults below."};
  Field<std::optional<OffloadPolicy>> offload_policy{
      "offload_policy", std::nullopt, "Keep sharded parameters, gradients and optimizer states in host memory."};
  Field<std::optional<DType>> autocast_dtype{"autocast_dtype", std::nullopt,
                                             "Dtype of matmuls; the residual stream keeps its own."};
  Field<plan::Recompute> activation_checkpointing{
      "activation_checkpointing", plan::Recompute::kNone,
      "Recompute activations in the backward pass: off, full (whole layers) or selective."};
  Field<CheckpointingScope> activation_checkpointing_scope{
      "activation_checkpointing_scope",
      {},
      "Towers whose activations are recomputed: all, or language, vision, audio, multimodal."};
  Field<bool> defer_fsdp_grad_sync{"defer_fsdp_grad_sync", true,
                                   "Reduce gradients only after the last microbatch of a step."};
  Field<std::optional<bool>> reshard_after_forward{
      "reshard_after_forward", std::nullopt,
      "Free gathered parameters after the forward pass; null: yes without a pipeline, no with one."};
  Field<bool> enable_async_tensor_parallel{
      "enable_async_tensor_parallel", false,
      "Overlap tensor-parallel communication with matmuls; implies sequence_parallel."};
  bool offloads() const { return offload_policy() && !offload_policy->target->is(OffloadClass::kNone); }
  Field<bool> enable_compile{"enable_compile", false, "torch.compile every layer.",
                             Ignored{"there is nothing to compile: the layers are compiled C++ already"}};
  Field<bool> enable_fsdp2_prefetch{
      "enable_fsdp2_prefetch", false,
      "Gather parameters ahead by the two depths below; if off, one unit ahead, as FSDP2 does."};
  Field<int> fsdp2_backward_prefetch_depth{"fsdp2_backward_prefetch_depth", 2,
                                           "Units gathered ahead in the backward pass.", at_least<0>};
  Field<int> fsdp2_forward_prefetch_depth{"fsdp2_forward_prefetch_depth", 1,
                                          "Units gathered ahead in the forward pass.", at_least<0>};
  Field<MultimodalConfig> multimodal{
      "multimodal", {}, "Vision and audio towers.", Ignored{"each rank computes all pictures of its sequences"}};
};

/// What Megatron-FSDP shards, by number or by name: 0 no_shard, 1 optim, 2 optim_grads, 3 optim_grads_params. nvFSDP's
/// documented `params` and `grads_params` map to 3, the lowest level that shards what they name. An out-of-range int is
/// accepted here and rejected by check().
struct ShardingLevel {
  int level = 3;
  bool named_less = false;  ///< the name omits state that this level also shards (`params`, `grads_params`)
  operator int() const { return level; }  // NOLINT(google-explicit-constructor): it is the number
  bool operator==(const ShardingLevel&) const = default;
  static TypeInfo config_type();
};
/// "no_shard", "optim", "optim_grads" or "optim_grads_params"; "" if out of range.
std::string_view name_of_level(int level);

/// NeMo AutoModel's MegatronFSDPConfig, with the option names of its predecessor nvFSDP as aliases.
struct MegatronFSDPConfig {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("megatron_fsdp"), std::string_view("megatron-fsdp"),
                                         std::string_view("mfsdp"), std::string_view("nvfsdp")};
  static constexpr std::string_view kDoc =
      "Megatron-FSDP: shards optimizer states, then also gradients, then also parameters, depending on "
      "zero_dp_strategy.";
  Field<std::optional<std::vector<std::string>>> megatron_fsdp_unit_modules{
      "megatron_fsdp_unit_modules|nvfsdp_unit_modules", std::nullopt,
      "Module classes gathered and freed together under zero_dp_strategy 3. Default: the model's decoder layer; a list "
      "without it makes each stage one unit."};
  Field<ShardingLevel> zero_dp_strategy{"zero_dp_strategy|data_parallel_sharding_strategy",
                                        {},
                                        "What is sharded: 0 (no_shard) nothing, 1 (optim) optimizer states, 2 "
                                        "(optim_grads) also gradients, 3 (optim_grads_params) also parameters."};
  Field<bool> init_fsdp_with_meta_device{"init_fsdp_with_meta_device|init_nvfsdp_with_meta_device", false,
                                         "Construct the model on the meta device.",
                                         Ignored{"every rank creates only its own part of the weights from the start"}};
  Field<bool> sequence_parallel{"sequence_parallel", false,
                                "Shard norms and residuals over tp ranks along the sequence."};
  Field<bool> grad_reduce_in_fp32{"grad_reduce_in_fp32", false,
                                  "Reduce gradients in float32 regardless of the parameters' dtype."};
  Field<bool> preserve_fp32_weights{"preserve_fp32_weights", true,
                                    "Keep float32 master weights beside low-precision parameters. NeMo AutoModel's "
                                    "default is false: updates below a weight's precision are lost."};
  Field<bool> overlap_grad_reduce{"overlap_grad_reduce", true, "Reduce gradients during the backward pass."};
  Field<bool> overlap_param_gather{"overlap_param_gather", true, "Gather parameters ahead of their use."};
  Field<bool> check_for_nan_in_grad{"check_for_nan_in_grad", true,
                                    "Stop before the optimizer step if a gradient is not finite."};
  Field<bool> report_nan_in_param_grad{"report_nan_in_param_grad", false,
                                       "Name the parameter whose gradient is not finite.",
                                       Ignored{"it is always named"}};
  Field<bool> average_in_collective{
      "average_in_collective", false, "Average inside the reduction.",
      Ignored{"the loss is divided before the backward pass; nothing is averaged afterwards"}};
  Field<bool> disable_bucketing{"disable_bucketing", false, "Reduce a whole stage's gradients at once."};
  Field<bool> calculate_per_token_loss{"calculate_per_token_loss", false, "Divide by tokens instead of sequences.",
                                       Ignored{"the loss is always the mean over all label tokens"}};
  Field<bool> keep_fp8_transpose_cache{"keep_fp8_transpose_cache|keep_fp8_transpose_cache_when_using_custom_fsdp",
                                       false, "Keep transposed FP8 weights.", Ignored{"there are no FP8 weights"}};
  Field<bool> nccl_ub{"nccl_ub", false, "Register NCCL user buffers.", Ignored{"no buffers are registered with NCCL"}};
  Field<bool> fsdp_double_buffer{
      "fsdp_double_buffer", false,
      "Gather decoder layers into two persistent buffers in turn, instead of allocating one per gather."};
  Field<plan::Recompute> activation_checkpointing{"activation_checkpointing", plan::Recompute::kNone,
                                                  "Recompute activations in the backward pass."};
  Field<Value> tp_plan{"tp_plan|tp_shard_plan", nullptr, "As with strategy fsdp2 (nvFSDP's tp_shard_plan)."};
};

/// NeMo AutoModel's DDPConfig.
struct DDPConfig {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("ddp")};
  static constexpr std::string_view kDoc = "Every rank holds all parameters; gradients are summed.";
  Field<plan::Recompute> activation_checkpointing{
      "activation_checkpointing", plan::Recompute::kNone,
      "Recompute activations in the backward pass: off, full or selective."};
  Field<CheckpointingScope> activation_checkpointing_scope{
      "activation_checkpointing_scope", {}, "Towers whose activations are recomputed."};
  Field<bool> broadcast_buffers{"broadcast_buffers", false, "Broadcast buffers each step.",
                                Ignored{"the models have no buffers that training changes"}};
  Field<bool> find_unused_parameters{"find_unused_parameters", false, "Look for parameters without gradient.",
                                     Ignored{"a parameter without gradient counts as zero in every strategy"}};
  Field<bool> static_graph{"static_graph", false, "Promise a graph that never changes.",
                           Ignored{"nothing depends on the graph staying the same"}};
  Field<std::optional<double>> bucket_cap_mb{"bucket_cap_mb", std::nullopt,
                                             "Size of a gradient bucket in MiB; null: 25."};
  Field<bool> gradient_as_bucket_view{"gradient_as_bucket_view", false, "Gradients are views of the buckets.",
                                      Ignored{"they always are"}};
  Field<std::optional<DType>> autocast_dtype{"autocast_dtype", std::nullopt, "Dtype of matmuls."};
};

using Strategy = std::variant<FSDP2Config, MegatronFSDPConfig, DDPConfig>;
template <>
struct ChoiceKey<Strategy> {
  static constexpr std::string_view value = "strategy";
};

/// NeMo AutoModel's MoEParallelizerConfig.
struct MoEParallelizerConfig {
  using IsSection = void;
  Field<bool> ignore_router_for_ac{"ignore_router_for_ac", true,
                                   "Keep the router's outputs where activations are recomputed.",
                                   Ignored{"routing is recomputed with the layer, bitwise identically"}};
  Field<bool> reshard_after_forward{"reshard_after_forward", false,
                                    "Free gathered expert parameters after the forward pass."};
  Field<std::optional<DType>> lm_head_precision{
      "lm_head_precision", std::nullopt, "Dtype of the head's matmul; null: the model's.",
      Ignored{"the head's matmul runs in the model's dtype, the loss in float32"}};
  Field<bool> wrap_outer_model{"wrap_outer_model", true, "Wrap the outer module.",
                               Ignored{"sharding units are decoder layers and the rest of a stage"}};
  Field<std::optional<MixedPrecisionPolicy>> mp_policy{"mp_policy", std::nullopt,
                                                       "Dtypes for experts; null: the strategy's.",
                                                       Ignored{"experts use the strategy's dtypes"}};
};

/// Manager classes of NeMo AutoModel and nvFSDP that select a strategy.
enum class ManagerClass { kFsdp2, kMegatronFsdp, kDdp };
template <>
struct EnumNames<ManagerClass> {
  using E = ManagerClass;
  static constexpr std::array names = {
      EnumName<E>{"FSDP2Manager", E::kFsdp2},
      EnumName<E>{"FSDP2Config", E::kFsdp2},
      EnumName<E>{"MegatronFSDPManager", E::kMegatronFsdp},
      EnumName<E>{"MegatronFSDPConfig", E::kMegatronFsdp},
      EnumName<E>{"NVFSDPManager", E::kMegatronFsdp},
      EnumName<E>{"DDPManager", E::kDdp},
      EnumName<E>{"DDPConfig", E::kDdp},
  };
};
/// The `distributed.strategy` that such a class stands for.
std::string_view strategy_of(ManagerClass manager);

/// The whole section.
struct DistributedConfig {
  using IsSection = void;
  Field<std::optional<int>> dp_size{
      "dp_size", std::nullopt, "Data-parallel ranks; null: inferred from the number of ranks and the other sizes."};
  Field<std::optional<int>> dp_replicate_size{
      "dp_replicate_size", std::nullopt,
      "Number of groups of ranks that each hold a full copy (HSDP); divides dp_size."};
  Field<std::optional<int>> tp_size{"tp_size", 1, "Tensor-parallel ranks."};
  Field<std::optional<int>> pp_size{"pp_size", 1, "Pipeline-parallel ranks."};
  Field<std::optional<int>> cp_size{"cp_size", 1, "Context-parallel ranks."};
  Field<std::optional<int>> ep_size{"ep_size", 1, "Expert-parallel ranks; reuses the ranks of dp, cp and tp."};
  Field<Strategy> strategy{Flat{}, FSDP2Config{}, "Data-parallel strategy and its options."};
  Field<std::optional<PipelineConfig>> pipeline{"pipeline", std::nullopt,
                                                "Pipeline parallelism; required if pp_size > 1."};
  Field<std::optional<MoEParallelizerConfig>> moe{"moe", std::nullopt,
                                                  "Mixture-of-experts options; used if ep_size > 1."};
  Field<std::optional<Backend>> backend{"backend", std::nullopt, "Communication backend, as dist_env.backend."};
  Field<PythonClass<ManagerClass>> target{
      "_target_", {}, "NeMo AutoModel class that selects the strategy if `strategy` is not given."};
  Field<Value> recursive{"_recursive_", nullptr, "Hydra's switch.", Ignored{"nothing is instantiated from names"}};
  Field<Value> convert{"_convert_", nullptr, "Hydra's switch.", Ignored{"nothing is instantiated from names"}};

  /// Activation checkpointing as the recipe requests it, regardless of its scope.
  plan::Recompute asked_checkpointing() const;
  /// The same, or kOff if the scope does not cover the language tower.
  plan::Recompute checkpointing() const;
  std::string_view strategy_name() const;
};

/// Checks rules across keys of this section. Problems carry no locations, and their `key` is relative ("pipeline").
Diagnostics check(const DistributedConfig& config);

}  // namespace automodel::config
