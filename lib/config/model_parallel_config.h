// `model_parallel:` the fields of Megatron Core's ModelParallelConfig (0.19.2 and older releases), with its checks.
// Sizes also given under `distributed:` must agree. docs/megatron.md describes what each field does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/dtype.h"
#include "config/types.h"

namespace automodel::config {

/// A Python callable or context manager in Megatron Core; a recipe can only omit it.
struct Callable {
  bool operator==(const Callable&) const = default;
  static TypeInfo config_type();
};

enum class PipelineBackend { kNccl, kUcc };
template <>
struct EnumNames<PipelineBackend> {
  static constexpr std::array names = {EnumName<PipelineBackend>{"nccl", PipelineBackend::kNccl},
                                       EnumName<PipelineBackend>{"ucc", PipelineBackend::kUcc}};
};
enum class CrossEntropyFusion { kNative, kTe };
template <>
struct EnumNames<CrossEntropyFusion> {
  static constexpr std::array names = {EnumName<CrossEntropyFusion>{"native", CrossEntropyFusion::kNative},
                                       EnumName<CrossEntropyFusion>{"te", CrossEntropyFusion::kTe}};
};
enum class BootstrapBackend { kNccl, kMpi, kGloo };
template <>
struct EnumNames<BootstrapBackend> {
  using E = BootstrapBackend;
  static constexpr std::array names = {EnumName<E>{"nccl", E::kNccl}, EnumName<E>{"mpi", E::kMpi},
                                       EnumName<E>{"gloo", E::kGloo}};
};
/// How context-parallel ranks exchange keys and values (TransformerConfig.cp_comm_type).
enum class ContextCommunication { kP2p, kAllGather, kA2a, kA2aP2p };
template <>
struct EnumNames<ContextCommunication> {
  using E = ContextCommunication;
  static constexpr std::array names = {EnumName<E>{"p2p", E::kP2p}, EnumName<E>{"all_gather", E::kAllGather},
                                       EnumName<E>{"a2a", E::kA2a}, EnumName<E>{"a2a+p2p", E::kA2aP2p},
                                       EnumName<E>{"allgather", E::kAllGather}};
};

/// Parts of a layer that are recomputed in the backward pass (TransformerConfig.recompute_modules).
enum class RecomputeModule { kCoreAttention, kNorms, kLatentUp, kMlp, kExperts, kExpertActivation, kSharedExperts };
template <>
struct EnumNames<RecomputeModule> {
  using E = RecomputeModule;
  static constexpr std::array names = {EnumName<E>{"core_attn", E::kCoreAttention},
                                       EnumName<E>{"layernorm", E::kNorms},
                                       EnumName<E>{"mla_up_proj", E::kLatentUp},
                                       EnumName<E>{"mlp", E::kMlp},
                                       EnumName<E>{"moe", E::kExperts},
                                       EnumName<E>{"moe_act", E::kExpertActivation},
                                       EnumName<E>{"shared_experts", E::kSharedExperts}};
};

struct ModelParallelConfig {
  using IsSection = void;
  // Sizes
  Field<int> tensor_model_parallel_size{"tensor_model_parallel_size", 1, "Tensor-parallel ranks; distributed.tp_size."};
  Field<std::optional<int>> tensor_parallel_num_weight_shards{
      "tensor_parallel_num_weight_shards", std::nullopt,
      "Weight shards over tensor-parallel and weight-gathering ranks together."};
  Field<int> gtp_weight_remat_size{"gtp_weight_remat_size", 1, "Weight-gathering ranks; derived.",
                                   Ignored{"it is derived from tensor_parallel_num_weight_shards"}};
  Field<std::optional<PipelineBackend>> pipeline_model_parallel_comm_backend{
      "pipeline_model_parallel_comm_backend", std::nullopt, "Backend of the pipeline's groups.",
      Ignored{"pipeline groups use the backend of all others"}};
  Field<int> pipeline_model_parallel_size{"pipeline_model_parallel_size", 1,
                                          "Pipeline-parallel ranks; distributed.pp_size."};
  Field<std::optional<int>> virtual_pipeline_model_parallel_size{"virtual_pipeline_model_parallel_size", std::nullopt,
                                                                 "Stages per pipeline rank."};
  Field<bool> sequence_parallel{"sequence_parallel", false,
                                "Shard norms and residuals over tp ranks along the sequence."};
  Field<int> context_parallel_size{"context_parallel_size", 1, "Context-parallel ranks; distributed.cp_size."};
  Field<std::optional<std::vector<int>>> hierarchical_context_parallel_sizes{
      "hierarchical_context_parallel_sizes", std::nullopt,
      "Ranks of the all-to-all level and of the point-to-point level; their product is cp_size."};
  Field<std::optional<int>> max_seqlen_per_dp_cp_rank{"max_seqlen_per_dp_cp_rank", std::nullopt,
                                                      "Capacity of a rank for hybrid context parallelism.",
                                                      Ignored{"hybrid context parallelism is not supported"}};
  Field<bool> hybrid_context_parallel{"hybrid_context_parallel", false, "Context-parallel size chosen per sequence."};
  Field<int> expert_model_parallel_size{"expert_model_parallel_size", 1, "Expert-parallel ranks; distributed.ep_size."};
  Field<std::optional<int>> expert_tensor_parallel_size{
      "expert_tensor_parallel_size", std::nullopt,
      "Ranks over which each expert's width is split; null: 1 (experts stay whole)."};
  Field<std::optional<int>> expert_tensor_parallel_num_weight_shards{
      "expert_tensor_parallel_num_weight_shards", std::nullopt, "As tensor_parallel_num_weight_shards, for experts."};
  Field<int> expert_gtp_weight_remat_size{"expert_gtp_weight_remat_size", 1, "As gtp_weight_remat_size, for experts.",
                                          Ignored{"it is derived from expert_tensor_parallel_num_weight_shards"}};
  Field<bool> moe_extended_tp{"moe_extended_tp", false, "Older name for expert tensor parallelism.",
                              Ignored{"Megatron Core ignores it since 0.10; use expert_tensor_parallel_size"}};
  // Initialisation
  Field<bool> perform_initialization{"perform_initialization", true,
                                     "Initialise the weights; false leaves them zero (for loading a checkpoint)."};
  Field<bool> use_cpu_initialization{"use_cpu_initialization", false, "Initialise the weights on the CPU.",
                                     Ignored{"initial weights are the same on every device and mesh already"}};
  // Training
  Field<bool> fp16{"fp16", false, "Compute in float16 with float32 master weights and a dynamic loss scale."};
  Field<bool> bf16{"bf16", false, "Compute in bfloat16 with float32 master weights."};
  Field<std::optional<DType>> params_dtype{"params_dtype", std::nullopt,
                                           "Dtype of the weights; null: float32, or as set by fp16 or bf16."};
  Field<Callable> timers{"timers", {}, "Python object.", Ignored{"the program times itself"}};
  Field<Callable> finalize_model_grads_func{
      "finalize_model_grads_func", {}, "Python function.", Ignored{"the program finalizes gradients itself"}};
  Field<Callable> grad_scale_func{
      "grad_scale_func",
      {},
      "Python function.",
      Ignored{"the loss scale comes from fp16; programs that link the library set train::StepHooks::grad_scale"}};
  Field<Callable> moe_grad_scale_func{
      "moe_grad_scale_func", {}, "Python function.", Ignored{"auxiliary losses are scaled as the loss is"}};
  Field<Callable> mtp_grad_scale_func{
      "mtp_grad_scale_func", {}, "Python function.", Ignored{"there are no multi-token-prediction layers"}};
  Field<Callable> no_sync_func{
      "no_sync_func", {}, "Python function.", Ignored{"the schedule decides when gradients are reduced"}};
  Field<Callable> grad_sync_func{
      "grad_sync_func", {}, "Python function.", Ignored{"the schedule decides when gradients are reduced"}};
  Field<Callable> param_sync_func{
      "param_sync_func", {}, "Python function.", Ignored{"the schedule decides when parameters are gathered"}};
  Field<bool> deterministic_mode{"deterministic_mode", false,
                                 "On a GPU, use only kernels whose results are bitwise reproducible."};
  Field<bool> enable_autocast{"enable_autocast", false, "Run matmuls in autocast_dtype."};
  Field<std::optional<DType>> autocast_dtype{"autocast_dtype", std::nullopt, "Dtype of autocast; null: params_dtype."};
  Field<std::optional<int>> num_microbatches_with_partial_activation_checkpoints{
      "num_microbatches_with_partial_activation_checkpoints", std::nullopt,
      "Number of microbatches in flight whose layers are not recomputed."};
  // Optimizations
  Field<bool> gradient_accumulation_fusion{
      "gradient_accumulation_fusion", false,
      "Accumulate weight gradients inside the GEMM, directly into the float32 main gradient."};
  Field<bool> async_tensor_model_parallel_allreduce{"async_tensor_model_parallel_allreduce", false, "Deprecated.",
                                                    Ignored{"Megatron Core ignores it"}};
  Field<bool> use_te_rng_tracker{"use_te_rng_tracker", false, "Transformer Engine's random numbers.",
                                 Ignored{"random numbers are keyed by seed, name and element"}};
  Field<bool> tp_comm_overlap{"tp_comm_overlap", false, "Overlap tensor-parallel communication with GEMMs."};
  Field<bool> tp_comm_bulk_wgrad{"tp_comm_bulk_wgrad", true, "Overlap the all-gather with the input-gradient GEMM."};
  Field<bool> tp_comm_bulk_dgrad{"tp_comm_bulk_dgrad", true,
                                 "Overlap the reduce-scatter with the weight-gradient GEMM."};
  Field<bool> tp_comm_overlap_ag{"tp_comm_overlap_ag", true, "Overlap a chunked all-gather with the GEMM."};
  Field<bool> tp_comm_overlap_rs{"tp_comm_overlap_rs", true, "Overlap a chunked reduce-scatter with the GEMM."};
  Field<bool> tp_comm_overlap_rs_dgrad{"tp_comm_overlap_rs_dgrad", false, "The same for the input-gradient GEMM."};
  Field<bool> tp_comm_split_ag{"tp_comm_split_ag", true, "Deprecated.",
                               Ignored{"Transformer Engine dropped it; tp_comm_overlap_ag does this"}};
  Field<bool> tp_comm_atomic_ag{"tp_comm_atomic_ag", false, "Deprecated.", Ignored{"Transformer Engine dropped it"}};
  Field<bool> tp_comm_split_rs{"tp_comm_split_rs", true, "Deprecated.",
                               Ignored{"Transformer Engine dropped it; tp_comm_overlap_rs does this"}};
  Field<bool> tp_comm_atomic_rs{"tp_comm_atomic_rs", false, "Deprecated.", Ignored{"Transformer Engine dropped it"}};
  Field<bool> cross_entropy_loss_fusion{"cross_entropy_loss_fusion", false, "Fused cross-entropy.",
                                        Ignored{"cross-entropy is always fused"}};
  Field<CrossEntropyFusion> cross_entropy_fusion_impl{"cross_entropy_fusion_impl", CrossEntropyFusion::kNative,
                                                      "Kernel implementation.", Ignored{"there is one implementation"}};
  Field<bool> tp_comm_overlap_disable_qkv{"tp_comm_overlap_disable_qkv", false,
                                          "No overlap in the query, key and value projections."};
  Field<bool> tp_comm_overlap_disable_fc1{"tp_comm_overlap_disable_fc1", false,
                                          "No overlap in the first linear layer of the MLP."};
  Field<BootstrapBackend> tp_comm_bootstrap_backend{
      "tp_comm_bootstrap_backend", BootstrapBackend::kNccl, "How user buffers are set up.",
      Ignored{"there are no user buffers to set up; MPI starts every backend"}};
  Field<bool> overlap_moe_expert_parallel_comm{"overlap_moe_expert_parallel_comm", false,
                                               "Overlap expert all-to-all with computation."};
  Field<bool> delay_wgrad_compute{"delay_wgrad_compute", false,
                                  "Compute weight gradients separately from input gradients, later."};
  Field<bool> overlap_dispatch_backward_with_experts_wgrad{
      "overlap_dispatch_backward_with_experts_wgrad", false,
      "Compute the experts' weight gradients during the communication of the dispatch's backward pass."};
  Field<bool> ep_overlap_early_attn_memory_release{"ep_overlap_early_attn_memory_release", false,
                                                   "Order of attention and MLP under that overlap.",
                                                   Ignored{"activations are freed as soon as their backward is done"}};
  // Pipeline parallelism
  Field<std::optional<DType>> pipeline_dtype{"pipeline_dtype", std::nullopt,
                                             "Dtype of activations sent between stages."};
  Field<bool> variable_seq_lengths{"variable_seq_lengths", false, "The sequence length may change between steps.",
                                   Ignored{"each step uses the length of its batches"}};
  Field<bool> overlap_p2p_comm{"overlap_p2p_comm", false, "Overlap pipeline communication with computation.",
                               Ignored{"communication between stages always overlaps with computation"}};
  Field<bool> batch_p2p_comm{
      "batch_p2p_comm", true, "Send and receive in batches.",
      Ignored{"receives are always posted ahead, and sends that belong together are issued together"}};
  Field<bool> batch_p2p_sync{"batch_p2p_sync", true, "Synchronise the device after a batch.",
                             Ignored{"it works around a defect of old PyTorch releases"}};
  Field<bool> use_ring_exchange_p2p{"use_ring_exchange_p2p", false, "Custom PyTorch build.",
                                    Ignored{"no released PyTorch has it"}};
  Field<bool> deallocate_pipeline_outputs{"deallocate_pipeline_outputs", false,
                                          "Free a stage's output once it is sent.", Ignored{"it always is"}};
  Field<bool> defer_embedding_wgrad_compute{"defer_embedding_wgrad_compute", false,
                                            "Compute the head's weight gradient while the pipeline drains."};
  Field<int> wgrad_deferral_limit{"wgrad_deferral_limit", 0, "Microbatches whose weight gradient is deferred; 0: all."};
  Field<bool> overlap_p2p_comm_warmup_flush{
      "overlap_p2p_comm_warmup_flush", false, "Overlap in warm-up and flush as well.",
      Ignored{"communication overlaps computation in every phase of the schedule"}};
  Field<std::optional<int>> microbatch_group_size_per_vp_stage{
      "microbatch_group_size_per_vp_stage", std::nullopt,
      "Consecutive microbatches of a stage under Megatron's interleaving; null: pp_size."};
  Field<bool> mtp_standalone{"mtp_standalone", false, "Multi-token prediction on a stage of its own.",
                             Ignored{"there are no multi-token-prediction layers"}};
  // CPU offloading
  Field<bool> cpu_offloading{"cpu_offloading", false, "Keep activations in host memory between forward and backward."};
  Field<int> cpu_offloading_num_layers{"cpu_offloading_num_layers", 0,
                                       "Layers, from the first, whose activations are offloaded."};
  Field<Callable> cpu_offloading_context{
      "_cpu_offloading_context", {}, "Python context.", Ignored{"internal to Megatron Core"}};
  Field<bool> cpu_offloading_activations{"cpu_offloading_activations", true, "Offload activations."};
  Field<bool> cpu_offloading_weights{
      "cpu_offloading_weights", false, "Offload weights.",
      Ignored{"Transformer Engine, which would do it, ignores it as well; distributed.offload_policy keeps master "
              "weights and gradients in host memory"}};
  Field<bool> cpu_offloading_double_buffering{"cpu_offloading_double_buffering", false, "Two buffers for reloading."};
  Field<bool> cpu_offloading_retain_pinned_cpu_buffers{"cpu_offloading_retain_pinned_cpu_buffers", false,
                                                       "Keep page-locked buffers between steps."};
  // CUDA graphs (TransformerConfig's)
  Field<bool> enable_cuda_graph{
      "enable_cuda_graph", false,
      "On a GPU, capture forward and backward of a microbatch once as a CUDA graph and replay "
      "it, where nothing inside it communicates. Not run on a GPU yet."};
  // Timing
  Field<bool> barrier_with_L1_time{"barrier_with_L1_time", true, "Barrier before timers.",
                                   Ignored{"timers need no barrier"}};
  // Fields of TransformerConfig that the above need
  Field<ContextCommunication> cp_comm_type{
      "cp_comm_type", ContextCommunication::kP2p,
      "How context-parallel ranks exchange keys and values: p2p (ring), all_gather, a2a, a2a+p2p."};
  Field<std::vector<RecomputeModule>> recompute_modules{
      "recompute_modules",
      {},
      "Parts of a layer that are recomputed in the backward pass instead of kept: core_attn, layernorm, mla_up_proj, "
      "mlp, moe, moe_act, shared_experts. For planning only; training follows distributed.activation_checkpointing."};
};

/// Megatron Core's __post_init__: fills in derived fields, returns the errors it raises (`key` is the field), and
/// appends its warnings to `warnings`. Also rejects combinations that Megatron Core documents as invalid but does not
/// check: fp16 together with bf16, and overlapped together with batched point-to-point communication.
Diagnostics post_init(ModelParallelConfig& config, Diagnostics& warnings);

}  // namespace automodel::config
