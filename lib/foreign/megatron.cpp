// long: tables of arguments.
// Megatron-LM's arguments (commit d98e8a64): a list of them, NVIDIA's MODEL_ARGS, or the YAML of --yaml-cfg.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "config/scalar.h"
#include "foreign/megatron_sizes.h"
#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

constexpr const char* kTrainer = "Megatron-LM";
constexpr const char* kLogging = "logging";
constexpr const char* kSaving = "saving, loading and evaluation";
constexpr const char* kKernels = "which kernel computes, not what";
constexpr const char* kData = "which tokens are read";
constexpr const char* kLaunch = "how the run starts and ends";

constexpr auto kNoEffect = std::to_array<KeyReason>({
    {"attention_backend", kKernels},
    {"use_flash_attn", kKernels},
    {"transformer_impl", kKernels},
    {"use_mcore_models", kKernels},
    {"use_legacy_models", kKernels},
    {"*fusion", kKernels},
    {"no_masked_softmax_fusion", kKernels},
    {"no_rope_fusion", kKernels},
    {"no_bias_*", kKernels},
    {"bias_*", kKernels},
    {"masked_softmax_fusion", kKernels},
    {"cross_entropy_*", kKernels},
    {"apply_rope_fusion", kKernels},
    {"persist_layer_norm", kKernels},
    {"memory_efficient_layer_norm", kKernels},
    {"moe_grouped_gemm", kKernels},
    {"moe_permute_fusion", kKernels},
    {"attention_softmax_in_fp32", kKernels},
    {"apply_query_key_layer_scaling", kKernels},
    {"rotary_interleaved", kKernels},
    {"clone_scatter_output_in_embedding", kKernels},
    {"openai_gelu", kKernels},
    {"onnx_safe", kKernels},
    {"gated_linear_unit", "the activation decides"},
    {"fp16_lm_cross_entropy", kKernels},
    {"distributed_*", kLaunch},
    {"log_*", kLogging},
    {"wandb_*", kLogging},
    {"tensorboard_*", kLogging},
    {"timing_log_*", kLogging},
    {"profile*", kLogging},
    {"one_logger*", kLogging},
    {"enable_one_logger", kLogging},
    {"save*", kSaving},
    {"load*", kSaving},
    {"no_save_*", kSaving},
    {"no_load_*", kSaving},
    {"ckpt_*", kSaving},
    {"no_ckpt_*", kSaving},
    {"auto_detect_ckpt_format", kSaving},
    {"dist_ckpt_*", kSaving},
    {"async_save", kSaving},
    {"use_persistent_ckpt_worker", kSaving},
    {"eval_*", kSaving},
    {"skip_train", kSaving},
    {"finetune", kSaving},
    {"use_checkpoint*", kSaving},
    {"override_opt_param_scheduler", kSaving},
    {"exit_on_missing_checkpoint", kSaving},
    {"retro_*", kSaving},
    {"exit_*", kLaunch},
    {"manual_gc*", kLaunch},
    {"empty_unused_memory_level", kLaunch},
    {"local_rank", kLaunch},
    {"lazy_mpu_init", kLaunch},
    {"adlr_*", kLaunch},
    {"nccl_*", kLaunch},
    {"use_cpu_initialization", "initial values"},
    {"perform_initialization", "initial values"},
    {"init_method*", "initial values"},
    {"output_layer_init_method", "initial values"},
    {"seed", "initial values and order"},
    {"data_parallel_random_init", "initial values"},
    {"data_path", kData},
    {"split", kData},
    {"*data_path", kData},
    {"train_data_path", kData},
    {"valid_data_path", kData},
    {"test_data_path", kData},
    {"data_cache_path", kData},
    {"mock_data", kData},
    {"num_workers", kData},
    {"no_mmap_bin_files", kData},
    {"no_create_attention_mask_in_dataloader", kData},
    {"dataloader_type", kData},
    {"reset_position_ids", kData},
    {"reset_attention_mask", kData},
    {"eod_mask_loss", kData},
    {"vocab_file", kData},
    {"merge_file", kData},
    {"tokenizer_*", kData},
    {"tiktoken_*", kData},
    {"retriever_seq_length", kData},
    {"sample_rate", kData},
    {"mask_prob", kData},
    {"short_seq_prob", kData},
    {"bert_binary_head", kData},
    {"calculate_per_token_loss", "the mean over tokens is the loss here"},
    {"apply_layernorm_1p", "how weights of norms are stored"},
    {"layernorm_zero_centered_gamma", "how weights of norms are stored"},
    {"no_position_embedding", "with rope there is none"},
    {"add_position_embedding", "with rope there is none"},
    {"check_for_nan_in_loss_and_grad", "ends bad runs"},
    {"no_check_for_nan_in_loss_and_grad", "ends bad runs"},
    {"rerun_mode", "ends bad runs"},
    {"align_grad_reduce", "when gradients are reduced"},
    {"align_param_gather", "when parameters are gathered"},
    {"no_align_*", "when parameters are gathered"},
    {"ddp_*", "how gradients are reduced"},
    {"bucket_size", "how gradients are reduced"},
    {"loss_scale*", "the loss scale adapts itself"},
    {"initial_loss_scale", "the loss scale adapts itself"},
    {"min_loss_scale", "the loss scale adapts itself"},
    {"hysteresis", "the loss scale adapts itself"},
    {"start_weight_decay", "weight decay of a plan does not matter"},
    {"end_weight_decay", "weight decay of a plan does not matter"},
    {"weight_decay_incr_style", "weight decay of a plan does not matter"},
    {"lr_warmup_init", "learning rates of a plan do not matter"},
    {"decoupled_min_lr", "learning rates of a plan do not matter"},
    {"decoupled_lr", "learning rates of a plan do not matter"},
    {"lr_wsd_*", "learning rates of a plan do not matter"},
    {"sgd_momentum", "AdamW has none"},
    {"fp8_margin", "float8 scales"},
    {"fp8_interval", "float8 scales"},
    {"fp8_amax_*", "float8 scales"},
    {"fp8_wgrad", "float8 scales"},
    {"async_tensor_model_parallel_allreduce", "it always overlaps"},
    {"scatter_gather_tensors_in_pipeline", "how stages send"},
    {"overlap_p2p_comm", "communication between stages always overlaps"},
    {"no_overlap_p2p_*", "communication between stages always overlaps"},
    {"batch_p2p_*", "how stages send"},
    {"deallocate_pipeline_outputs", "it always is"},
    {"barrier_with_l1_time", kLogging},
    {"barrier_with_L1_time", kLogging},
    {"tp_comm_split_*", "Transformer Engine dropped it"},
    {"tp_comm_atomic_*", "Transformer Engine dropped it"},
    {"tp_comm_bulk_*", "the default"},
    {"tp_comm_overlap_cfg", "sizes of chunks"},
    {"cpu_offloading_activations", "the default"},
    {"moe_aux_loss_coeff", "the balance loss adds no memory; it is not planned"},
    {"moe_z_loss_coeff", "the balance loss adds no memory; it is not planned"},
    {"moe_router_load_balancing_type", "the balance loss adds no memory; it is not planned"},
    {"moe_per_layer_logging", kLogging},
    {"moe_router_dtype", kKernels},
    {"moe_router_pre_softmax", "the order of softmax and top-k"},
    {"test_mode", kLaunch},
    {"accumulate_allreduce_grads_in_fp32", "with bf16 it is the default"},
    {"high_priority_stream_groups", kKernels},
    {"use_precision_aware_optimizer", "the types are read under their own keys"},
    {"group_query_attention", "num_query_groups says how many"},
});
constexpr auto kCannot = std::to_array<KeyReason>({
    {"fp8_param_gather", "weights are gathered in float8: planned in 16 bits"},
    {"optimizer_cpu_offload",
     "optimizer states in host memory (12 bytes per parameter of the rank's shard): planned on the device"},
    {"fine_grained_activation_offloading", "activations of modules in host memory: planned on the device"},
    {"mtp_num_layers", "layers that predict further tokens are not planned"},
    {"moe_expert_capacity_factor", "tokens above an expert's capacity are dropped: planned without a limit"},
    {"moe_token_dropping", "tokens above an expert's capacity are dropped: planned without a limit"},
    {"moe_input_jitter_eps", "noise on the router's input"},
    {"fp32_residual_connection", "the residual stream is float32: planned in the type of computation"},
    {"apply_residual_connection_post_layernorm", "another residual connection"},
    {"window_size", "a sliding window"},
    {"standalone_embedding_stage", "a stage of the embedding alone, beside pipeline ranks"},
    {"use_tp_pp_dp_mapping", "another order of ranks"},
    {"inprocess_restart", "restarts within the process"},
    {"moe_shared_expert_intermediate_size", "a shared expert beside the routed ones"},
    {"heterogeneous_layers_config_path", "layers of several kinds"},
});
constexpr auto kRefuse = std::to_array<KeyReason>({
    {"encoder_num_layers", "an encoder-decoder model (pretrain_t5.py) has no equivalent"},
    {"decoder_num_layers", "an encoder-decoder model (pretrain_t5.py) has no equivalent"},
    {"decoder_seq_length", "an encoder-decoder model (pretrain_t5.py) has no equivalent"},
    {"fp4_format", "weights in 4 bits have no equivalent"},
    {"fp4_recipe", "weights in 4 bits have no equivalent"},
    {"biencoder_projection_dim", "embedding models have no equivalent"},
    {"bert_load", "BERT has no equivalent"},
    {"img_h", "vision models have no equivalent"},
    {"num_classes", "classifiers have no equivalent"},
    {"retro_add_retriever", "retrieval models have no equivalent"},
    {"export_te_mcore_model", "quantized export is not training"},
});

/// One flat map of arguments by the names of the command line, with underscores.
config::Node flatten(const SourceFile& file) {
  config::Node out{.kind = config::Node::Kind::kMap, .entries = {}};
  const auto add = [&](const config::Node::Entry& each) {
    auto copy = each;
    copy.key.erase(0, copy.key.find_first_not_of('-'));
    std::ranges::replace(copy.key, '-', '_');
    auto& value = copy.value;
    if (value.text.starts_with('[') && value.text.ends_with(']'))  // NVIDIA's tests: several words
      value.text = value.text.substr(1, value.text.size() - 2);
    set_entry(out, std::move(copy));
  };
  const auto add_all = [&](std::string_view section) {
    if (const auto* found = file.root.find(section))
      for (const auto& each : found->value.entries) add(each);
  };
  add_all("MODEL_ARGS");
  add_all("language_model");
  add_all("model_parallel");
  for (const auto& each : file.root.entries)
    if (each.value.kind != config::Node::Kind::kMap && each.key != "METRICS" && each.key != "TEST_TYPE" &&
        each.key != "LAUNCHER" && each.key != "MODE" && each.key != "NUM_REPETITIONS")
      add(each);
  if (file.root.find("language_model") == nullptr) return out;
  // --yaml-cfg has names of TransformerConfig.
  const auto rename = [&](std::string_view from, std::string to, bool inverted = false) {
    auto* found = out.find(from);
    if (found == nullptr || found->value.is_null()) return;
    found->key = std::move(to);
    if (inverted)
      found->value.text = config::parse_boolean(found->value.text, false).value_or(false) ? "false" : "true";
  };
  rename("num_moe_experts", "num_experts");
  rename("fp8", "fp8_format");
  rename("add_bias_linear", "disable_bias_linear", true);
  rename("layernorm_epsilon", "norm_epsilon");
  if (auto* activation = out.find("activation_func")) {
    const auto where = activation->value.where;
    const auto name = activation->value.text;
    std::erase_if(out.entries, [](const auto& each) { return each.key == "activation_func"; });
    set_entry(out, {name == "swiglu" ? "swiglu" : "squared_relu", where,
                    scalar_node(name == "gelu" ? "false" : "true", where)});
  }
  return out;
}

void read_mesh(Keys& keys, Resolved& out, Findings& findings) {
  out.tp = keys.ranks({"tensor_model_parallel_size"}).or_default(1, kTrainer);
  out.pp = keys.ranks({"pipeline_model_parallel_size"}).or_default(1, kTrainer);
  out.cp = keys.ranks({"context_parallel_size"}).or_default(1, kTrainer);
  out.ep = keys.ranks({"expert_model_parallel_size"}).or_default(1, kTrainer);
  const auto etp = keys.ranks({"expert_tensor_parallel_size"});
  if (keys.active("num_experts"))
    out.etp = etp ? etp : Setting<std::int64_t>{*out.tp, "default of Megatron-LM: tensor_model_parallel_size"};
  const auto sequence = keys.flag({"sequence_parallel"});
  out.sequence_parallel = {sequence.value_or(false) && *out.tp > 1, "sequence_parallel"};
  if (sequence.value_or(false) && *out.tp == 1)
    findings.ignore("sequence_parallel", "Megatron switches it off at tensor-parallel size 1");
  if (const auto type = keys.list({"cp_comm_type"}); !type.empty() && *out.cp > 1)
    out.cp_comm_type = {type[0], "cp_comm_type"};
  if (const auto levels = keys.list({"hierarchical_context_parallel_sizes"}); !levels.empty())
    out.model_parallel.emplace_back("hierarchical_context_parallel_sizes",
                                    fmt::format("[{}]", fmt::join(levels, ", ")));
  if (const auto copies = keys.ranks({"num_distributed_optimizer_instances"}); copies && *copies > 1)
    out.dp_replicate = copies;
}

void read_sharding(Keys& keys, Resolved& out, Findings& findings) {
  const auto name = keys.text({"data_parallel_sharding_strategy"});
  constexpr std::string_view kLevels[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
  out.offload = {"none", ""};
  if (keys.active("use_megatron_fsdp") || keys.active("use_custom_fsdp")) {
    const auto* level = name ? std::ranges::find(kLevels, *name) : std::end(kLevels) - 1;
    if (level == std::end(kLevels))
      findings.refuse(keys.shown("data_parallel_sharding_strategy"), "not one of Megatron-FSDP's");
    out.strategy = {"megatron_fsdp", "use_megatron_fsdp"};
    out.zero_stage = static_cast<int>(std::min<std::ptrdiff_t>(level - kLevels, 3));
  } else if (keys.active("use_torch_fsdp2")) {
    out.strategy = {"fsdp2", "use_torch_fsdp2"};
    out.zero_stage = 3;
  } else if (keys.active("use_distributed_optimizer")) {
    out.strategy = {"megatron_fsdp", "use_distributed_optimizer"};
    out.zero_stage = 1;
  } else {
    out.strategy = {"ddp", "no distributed optimizer"};
    if (keys.active("overlap_param_gather"))
      findings.refuse("overlap_param_gather", "Megatron refuses it without the distributed optimizer");
  }
  if (name && *out.strategy != "megatron_fsdp")
    findings.ignore(keys.shown("data_parallel_sharding_strategy"), "only Megatron-FSDP reads it");
  for (const auto* each : {"use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2", "use_distributed_optimizer"})
    keys.take(each);
  out.overlap_grad_reduce = keys.flag({"overlap_grad_reduce"}).or_default(false, kTrainer);
  out.overlap_param_gather = keys.flag({"overlap_param_gather"}).or_default(false, kTrainer);
}

std::string type_name(const std::string& name) {
  return name == "fp32" ? "float32" : name == "bf16" ? "bfloat16" : name == "fp16" ? "float16" : name;
}

void read_types(Keys& keys, Resolved& out, Findings& findings) {
  const bool bf16 = keys.active("bf16"), fp16 = keys.active("fp16");
  for (const auto* each : {"bf16", "fp16", "params_dtype"}) keys.take(each);
  if (bf16 && fp16) findings.refuse("bf16 and fp16", "Megatron takes one of them");
  out.dtype = bf16   ? Setting<std::string>{"bfloat16", "bf16"}
              : fp16 ? Setting<std::string>{"float16", "fp16"}
                     : Setting<std::string>{"float32", "neither bf16 nor fp16"};
  out.weights_dtype = *out.dtype;
  const bool low = keys.active("grad_reduce_in_bf16") || fp16;
  keys.take("grad_reduce_in_bf16");
  out.grad_accum_dtype = {low ? *out.dtype : "float32",
                          low ? (fp16 ? "fp16" : "grad_reduce_in_bf16") : "accumulate_allreduce_grads_in_fp32"};
  out.grad_fusion = {!keys.active("no_gradient_accumulation_fusion") && !low &&
                         !(keys.given("gradient_accumulation_fusion") && !keys.active("gradient_accumulation_fusion")),
                     "gradient_accumulation_fusion"};
  keys.take("no_gradient_accumulation_fusion");
  keys.take("gradient_accumulation_fusion");
  if (const auto type = keys.text({"main_grads_dtype"})) out.grad_accum_dtype = {type_name(*type), type.key};
  const auto masters = keys.text({"main_params_dtype"});
  out.master_dtype = masters ? Setting<std::string>{type_name(*masters), masters.key}
                             : Setting<std::string>{"float32", "default of Megatron-LM"};
  out.optimizer_states = "float32";
  for (const auto* each : {"exp_avg_dtype", "exp_avg_sq_dtype"})
    if (const auto type = keys.text({each})) {
      const auto known = type_name(*type);
      out.optimizer_states = known == "fp8" ? "8bit" : known;
      if (known == "fp8") findings.cannot(keys.shown(each), "moments in one byte: planned in bfloat16, an upper bound");
    }
  const auto format = keys.text({"fp8_format"}), recipe = keys.text({"fp8_recipe"});
  out.fp8 = {format ? *format : "false", "fp8_format"};
  if (format && recipe.value_or("delayed") != "tensorwise")
    findings.cannot(
        fmt::format("fp8_format {}", *format),
        fmt::format("{} scaling (TE): planned with scales of the current tensor", recipe.value_or("delayed")));
}

void read_recomputation(Keys& keys, Resolved& out, Findings& findings) {
  const auto granularity = keys.text({"recompute_granularity"}), method = keys.text({"recompute_method"});
  const auto layers = keys.integer({"recompute_num_layers"});
  auto modules = keys.list({"recompute_modules"});
  const bool short_form = keys.active("recompute_activations");
  keys.take("recompute_activations");
  keys.take("distribute_saved_activations");
  if (short_form || granularity.value_or("") == "selective") {
    out.recompute = {"selective", granularity ? granularity.key : "recompute_activations"};
    if (modules.empty()) modules.push_back("core_attn");
    out.recompute_modules = modules;
  } else if (granularity.value_or("") == "full") {
    out.recompute = {"full", granularity.key};
    if (method.value_or("uniform") == "block")
      findings.cannot(fmt::format("recompute_method: block, recompute_num_layers: {}", layers.value_or(1)),
                      "only these layers of a stage are recomputed: planned with all of them");
    else if (layers.value_or(1) > 1)
      findings.cannot(fmt::format("recompute_num_layers: {}", *layers),
                      "blocks of several layers keep one input: planned with one per layer");
  } else {
    out.recompute = {"none", "default of Megatron-LM"};
  }
}

void read_batch(Keys& keys, Resolved& out, Findings& findings) {
  out.micro_batch = keys.integer({"micro_batch_size"});
  out.global_batch = keys.integer({"global_batch_size"});
  out.packing = Packing::kConcatenated;
  if (const auto steps = keys.list({"step_batch_size_schedule"}); !steps.empty()) {
    const auto shown = fmt::format("{}", fmt::join(steps, " "));
    if (out.global_batch)
      return findings.refuse("step_batch_size_schedule with global_batch_size",
                             "Megatron refuses both together, and its value must be one word");
    const auto last = steps.back().substr(steps.back().find(':') + 1);
    out.global_batch_schedule = {shown, "step_batch_size_schedule"};
    out.global_batch = {config::parse_integer(last).value_or(0), "the last size of step_batch_size_schedule"};
    findings.cannot("step_batch_size_schedule: " + shown, "planned with its last batch size");
  }
  if (const auto ramp = keys.list({"rampup_batch_size"}); ramp.size() == 3) {
    const auto shown = fmt::format("rampup {} by {} over {} samples", ramp[0], ramp[1], ramp[2]);
    out.global_batch_schedule = {shown, "rampup_batch_size"};
    findings.cannot("rampup_batch_size: " + shown, "planned with the final batch");
  }
}

void read_optimizer(Keys& keys, const Surroundings& around, Resolved& out, Findings& findings) {
  apply_optimizer(keys.text({"optimizer"}).or_default("adam", kTrainer), around, out, findings);
  out.lr = keys.number({"lr"});
  out.min_lr = keys.number({"min_lr"}).or_default(0.0, kTrainer);
  out.weight_decay = keys.number({"weight_decay"}).or_default(0.01, kTrainer);
  out.betas = {{keys.number({"adam_beta1"}).value_or(0.9), keys.number({"adam_beta2"}).value_or(0.999)},
               "adam_beta1, adam_beta2"};
  out.eps = keys.number({"adam_eps"}).or_default(1e-8, kTrainer);
  out.max_grad_norm = keys.number({"clip_grad"}).or_default(1.0, kTrainer);
  out.no_clipping = *out.max_grad_norm == 0;
  out.lr_decay_style = keys.text({"lr_decay_style"}).or_default("linear", kTrainer);
  if (*out.lr_decay_style == "WSD" || *out.lr_decay_style == "inverse-square-root") {
    findings.ignore(keys.shown("lr_decay_style"), "learning rates of a plan do not matter");
    out.lr_decay_style = {};
  }
  const double batch = static_cast<double>(std::max<std::int64_t>(1, out.global_batch.value_or(1)));
  const auto steps = [&](std::string_view iterations, std::string_view samples) {
    const auto direct = keys.integer({iterations});
    const auto counted = keys.integer({samples});
    if (direct) return direct;
    return counted ? Setting<std::int64_t>{static_cast<std::int64_t>(static_cast<double>(*counted) / batch),
                                           counted.key + " / global batch"}
                   : Setting<std::int64_t>{};
  };
  out.max_steps = steps("train_iters", "train_samples");
  out.decay_steps = steps("lr_decay_iters", "lr_decay_samples");
  out.warmup_steps = steps("lr_warmup_iters", "lr_warmup_samples");
  const auto fraction = keys.number({"lr_warmup_fraction"});
  const auto span = out.decay_steps ? out.decay_steps : out.max_steps;
  if (fraction && span)
    out.warmup_steps = {static_cast<std::int64_t>(*fraction * static_cast<double>(*span)), "lr_warmup_fraction"};
}

void read_pipeline(Keys& keys, Resolved& out, Findings& findings) {
  const auto& sizes = *out.sizes;
  out.account_for_embedding = keys.active("account_for_embedding_in_pipeline_split");
  out.account_for_loss = keys.active("account_for_loss_in_pipeline_split");
  keys.take("account_for_embedding_in_pipeline_split");
  keys.take("account_for_loss_in_pipeline_split");
  const auto slots = sizes.num_layers + (out.account_for_embedding ? 1 : 0) + (out.account_for_loss ? 1 : 0);
  const auto per_stage = keys.ranks({"num_layers_per_virtual_pipeline_stage"});
  out.vpp = keys.ranks({"num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size"});
  if (per_stage && *per_stage > 0) out.vpp = {slots / *out.pp / *per_stage, per_stage.key};
  const auto layout = keys.text({"pipeline_model_parallel_layout"});
  const auto first = keys.integer({"decoder_first_pipeline_num_layers"}),
             last = keys.integer({"decoder_last_pipeline_num_layers"});
  if (const auto group = keys.integer({"microbatch_group_size_per_virtual_pipeline_stage"}); group && out.vpp)
    out.model_parallel.emplace_back("microbatch_group_size_per_vp_stage", fmt::format("{}", *group));
  if (*out.pp == 1) return;
  const auto stages = times(*out.pp, std::max<std::int64_t>(1, out.vpp.value_or(1)));
  out.pp_schedule = {out.vpp.value_or(1) > 1 ? "MegatronInterleaved" : "1f1b", "pipeline_model_parallel_size"};
  if (slots < stages || slots > 1 << 16)
    return findings.refuse(fmt::format("num_layers: {}", sizes.num_layers),
                           fmt::format("{} stages need at least as many layers, and at most 65536", stages));
  if (layout) {
    out.pipeline_layout = *layout;
    if (layout->find('m') != std::string::npos)
      findings.cannot(keys.shown("pipeline_model_parallel_layout"), "layers that predict further tokens (m)");
  } else if (first || last) {
    // These are layers of a rank, over all its virtual stages.
    const auto between = *out.pp - (first ? 1 : 0) - (last ? 1 : 0), virtuals = stages / *out.pp;
    const auto rest = sizes.num_layers - first.value_or(0) - last.value_or(0);
    const auto each = between > 0 ? rest / between : 0;
    const auto undivided = [&](std::int64_t layers) { return layers < virtuals || layers % virtuals != 0; };
    if (each * between != rest || (between > 0 && undivided(each)) || (first && undivided(*first)) ||
        (last && undivided(*last)))
      return findings.refuse(first ? first.key : last.key,
                             fmt::format("{} layers cannot be divided so over {} ranks of {} stages", sizes.num_layers,
                                         *out.pp, virtuals));
    for (std::int64_t stage = 0; stage < stages; ++stage) {
      const auto rank = stage % *out.pp;
      const auto here = first && rank == 0 ? *first : last && rank == *out.pp - 1 ? *last : each;
      out.layers_per_stage.push_back(here / virtuals);
    }
  } else if (slots % stages != 0) {
    findings.refuse(fmt::format("num_layers: {}", sizes.num_layers),
                    fmt::format("{} layers{} cannot be divided over {} stages without a layout", sizes.num_layers,
                                slots > sizes.num_layers ? " and what counts as one" : "", stages));
  } else if (slots > sizes.num_layers) {
    // A stage may hold the embedding or the loss alone, so a number of layers per stage cannot say it.
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      if (slot > 0 && slot % (slots / stages) == 0) out.pipeline_layout += '|';
      const bool embedding = out.account_for_embedding && slot == 0, loss = out.account_for_loss && slot == slots - 1;
      if (slot == 0) out.pipeline_layout += 'E';
      if (!embedding && !loss) out.pipeline_layout += 't';
      if (slot == slots - 1) out.pipeline_layout += 'L';
    }
  }
}

void read_model_parallel(Keys& keys, Resolved& out, Findings& findings) {
  for (const auto* each : {"tp_comm_overlap", "delay_wgrad_compute", "overlap_moe_expert_parallel_comm",
                           "defer_embedding_wgrad_compute", "deterministic_mode"}) {
    if (keys.active(each)) out.model_parallel.emplace_back(each, "true");
    keys.take(each);
  }
  if (const auto layers = keys.integer({"cpu_offloading_num_layers"}); layers && *layers > 0) {
    out.model_parallel.emplace_back("cpu_offloading", "true");
    out.model_parallel.emplace_back("cpu_offloading_num_layers", fmt::format("{}", *layers));
  }
  keys.take("cpu_offloading");
  const auto dispatcher = keys.text({"moe_token_dispatcher_type"});
  if (keys.active("moe_enable_deepep") || dispatcher.value_or("") == "flex")
    out.dispatcher = "deduplicated";
  else if (out.etp)
    out.dispatcher = "nccl";
  keys.take("moe_enable_deepep");
  if (keys.shown("moe_router_load_balancing_type").ends_with(": sinkhorn"))
    findings.note("moe_router_load_balancing_type: sinkhorn",
                  "another assignment of tokens to experts, of the same sizes");
}

}  // namespace

void read_megatron(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  const auto flat = flatten(file);
  Keys keys(&flat, findings);
  out.stack = "transformer_engine";
  keys.refuse(kRefuse);
  if (keys.given("vocab_extra_ids") && keys.active("vocab_extra_ids"))
    findings.refuse("vocab_extra_ids", "sentinels of T5 have no equivalent");
  keys.take("vocab_extra_ids");
  read_mesh(keys, out, findings);
  read_sharding(keys, out, findings);
  read_types(keys, out, findings);
  read_recomputation(keys, out, findings);
  read_batch(keys, out, findings);
  out.seq_length = keys.integer({"seq_length", "encoder_seq_length"});
  out.sizes = read_megatron_sizes(keys, around.vocab_size, *out.tp, findings);
  read_pipeline(keys, out, findings);
  read_optimizer(keys, around, out, findings);
  read_model_parallel(keys, out, findings);
  for (const auto* each : {"hidden_dropout", "attention_dropout"})
    if (const auto rate = keys.number({each}).or_default(0.1, kTrainer); *rate > 0)
      findings.cannot(fmt::format("{}: {}{}", each, *rate, keys.given(each) ? "" : " (default)"),
                      "dropout inside layers; its masks, up to a byte per element, are not counted");
  keys.cannot(kCannot);
  keys.no_effect(kNoEffect);
  keys.leftovers(kTrainer);
}

}  // namespace automodel::foreign
