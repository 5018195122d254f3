// axolotl's YAML (commit 067b021c).
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

constexpr const char* kTrainer = "axolotl";
constexpr const char* kLogging = "logging";
constexpr const char* kSaving = "saving and evaluation";
constexpr const char* kKernels = "which kernel computes, not what";
constexpr const char* kData = "which rows are read: the plan uses rows of the full length";

constexpr auto kNoEffect = std::to_array<KeyReason>({
    {"attn_implementation", kKernels},
    {"flash_attention", kKernels},
    {"xformers_attention", kKernels},
    {"sdp_attention", kKernels},
    {"flash_attn_*", kKernels},
    {"flex_attention", kKernels},
    {"eager_attention", kKernels},
    {"tf32", kKernels},
    {"liger_rope", kKernels},
    {"liger_rms_norm", kKernels},
    {"liger_glu_activation", kKernels},
    {"liger_swiglu", kKernels},
    {"liger_layer_norm", kKernels},
    {"lora_mlp_kernel", kKernels},
    {"lora_qkv_kernel", kKernels},
    {"lora_o_kernel", kKernels},
    {"lora_embedding_kernel", kKernels},
    {"torch_compile*", kKernels},
    {"use_kernels", kKernels},
    {"use_scattermoe", kKernels},
    {"use_sonicmoe", kKernels},
    {"use_flash*", kKernels},
    {"plugins", "switches are read under their own keys"},
    {"gradient_checkpointing_kwargs", kKernels},
    {"wandb_*", kLogging},
    {"trackio_*", kLogging},
    {"mlflow_*", kLogging},
    {"comet_*", kLogging},
    {"use_wandb", kLogging},
    {"use_mlflow", kLogging},
    {"logging_steps", kLogging},
    {"include_tokens_per_second", kLogging},
    {"profiler_steps*", kLogging},
    {"debug", kLogging},
    {"saves_per_epoch", kSaving},
    {"save_*", kSaving},
    {"evals_per_epoch", kSaving},
    {"eval_*", kSaving},
    {"evaluation_strategy", kSaving},
    {"output_dir", kSaving},
    {"hub_*", kSaving},
    {"push_*", kSaving},
    {"load_best_model_at_end", kSaving},
    {"early_stopping_patience", kSaving},
    {"resume_from_checkpoint", kSaving},
    {"auto_resume_from_checkpoints", kSaving},
    {"do_bench_eval", kSaving},
    {"do_causal_lm_eval", kSaving},
    {"dataset_prepared_path", kData},
    {"datasets", kData},
    {"test_datasets", kData},
    {"pretraining_dataset", kData},
    {"val_set_size", kData},
    {"dataset_*", kData},
    {"chat_template*", kData},
    {"shuffle_merged_datasets", kData},
    {"min_sample_len", kData},
    {"train_on_inputs", kData},
    {"group_by_length", kData},
    {"dataloader_*", kData},
    {"special_tokens", kData},
    {"tokens", kData},
    {"eot_tokens", kData},
    {"added_tokens_overrides", kData},
    {"tokenizer_*", kData},
    {"default_system_message", kData},
    {"streaming*", kData},
    {"skip_prepare_dataset", kData},
    {"excess_length_strategy", kData},
    {"sample_packing_*", kData},
    {"pad_to_sequence_len", "rows have the full length"},
    {"model_type", "the model's configuration names its class"},
    {"trust_remote_code", "no code of a model is run"},
    {"revision_of_model", "the sizes are the same"},
    {"model_config*", "not a size"},
    {"reinit_weights", "initial values"},
    {"strict", "a check of axolotl's"},
    {"loss_watchdog_*", "ends bad runs"},
    {"seed", "initial values and order"},
    {"ddp_timeout", "a time limit"},
    {"ddp_*", "how gradients are reduced"},
    {"accelerator_config", "how gradients are reduced"},
    {"experimental_skip_move_to_device", "how weights are loaded"},
    {"low_cpu_mem_usage", "how weights are loaded"},
    {"embeddings_skip_upcast", "how weights are loaded"},
    {"device_map", "ranks take their own device"},
    {"lora_model_dir", "a checkpoint of adapters to continue"},
    {"local_rank", "set by the launcher"},
    {"gpu_memory_limit", "a check of axolotl's"},
    {"resize_token_embeddings_to_32x", "a few rows of the vocabulary"},
});
constexpr auto kCannot = std::to_array<KeyReason>({
    {"tiled_mlp", "the MLP is computed in tiles of the sequence: its activations are overstated"},
    {"fp8", "which layers use float8 is decided when it runs; planned without"},
    {"lora_modules_to_save", "whole modules are trained beside the adapters: planned as adapters only"},
    {"peft_use_rslora", "another scale of the adapters"},
    {"lora_rank_pattern", "adapters of several ranks"},
    {"peft_layers_to_transform", "adapters on some layers only: planned on all"},
    {"quantize_moe_experts", "experts are not quantized here"},
    {"use_onebitllms", "weights of one bit: planned as 16-bit weights, an upper bound"},
    {"lora_target_parameters", "adapters on single parameters (for experts: *mlp.experts)"},
    {"loraplus_lr_ratio", "another rate for B"},
    {"jagged_restart_steps", "restarts of the learning rate"},
});
constexpr auto kRefuse = std::to_array<KeyReason>({
    {"rl", "two models, pairs of sequences or generation: planned as fine-tuning it would understate memory"},
    {"reward_model", "a reward model has no equivalent"},
    {"process_reward_model", "a reward model has no equivalent"},
    {"relora", "ReLoRA merges adapters while it trains"},
    {"relora_steps", "ReLoRA merges adapters while it trains"},
    {"lisa_n_layers", "LISA trains other layers every few steps"},
    {"qat", "quantization-aware training has no equivalent"},
    {"gptq", "GPTQ weights have no equivalent"},
    {"s2_attention", "S2 attention has no equivalent"},
    {"kd_trainer", "distillation has two models"},
    {"llmcompressor", "sparse fine-tuning has no equivalent"},
});

/// axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin switches its loss on by being listed.
bool has_plugin(Keys& keys, std::string_view word) {
  const auto plugins = keys.list({"plugins"});
  return std::ranges::any_of(plugins, [&](const auto& each) { return each.find(word) != std::string::npos; });
}

void read_types(Keys& keys, Resolved& out) {
  const auto off = [&](std::string_view key) { return keys.given(key) && !keys.active(key); };
  if (keys.active("fp16") || keys.active("float16"))
    out.dtype = {"float16", keys.active("fp16") ? "fp16" : "float16"};
  else if (keys.active("bf16") || keys.active("bfloat16") || !off("bf16"))
    out.dtype = {"bfloat16", keys.given("bf16") ? "bf16" : "default of axolotl: bf16"};
  else
    out.dtype = {"float32", "bf16: false"};
  for (const auto* each : {"fp16", "float16", "bf16", "bfloat16"}) keys.take(each);
  out.weights_dtype = *out.dtype;
}

void read_adapter(Keys& keys, Resolved& out, Findings& findings) {
  const auto kind = keys.text({"adapter"});
  const bool four = keys.flag({"load_in_4bit"}).value_or(false), eight = keys.flag({"load_in_8bit"}).value_or(false);
  if (!kind) {
    if (four || eight) findings.refuse(four ? "load_in_4bit" : "load_in_8bit", "axolotl refuses it without an adapter");
    for (const auto* each :
         {"lora_r", "lora_alpha", "lora_dropout", "lora_target_linear", "lora_target_modules", "peft_use_dora"})
      keys.take(each);
    return;
  }
  if (*kind != "lora" && *kind != "qlora")
    return findings.refuse(keys.shown("adapter"), "only LoRA adapters have an equivalent");
  Adapter adapter;
  adapter.dim = keys.integer({"lora_r"}).value_or(8);
  adapter.alpha = keys.integer({"lora_alpha"}).value_or(16);
  adapter.dropout = keys.number({"lora_dropout"}).value_or(0.0);
  adapter.dora = keys.flag({"peft_use_dora"}).value_or(false);
  adapter.targets = keys.list({"lora_target_modules"});
  const bool all = keys.flag({"lora_target_linear"}).value_or(false);
  if (all || (adapter.targets.size() == 1 && adapter.targets[0] == "all-linear")) adapter.targets.clear();
  out.adapter = {
      adapter, "lora_r, lora_alpha, lora_dropout, " + std::string(all ? "lora_target_linear" : "lora_target_modules")};
  if (four || (*kind == "qlora" && !eight)) out.quantization = {"nf4-double", "load_in_4bit"};
  if (eight) out.quantization = {"int8", "load_in_8bit"};
}

void read_sharding(Keys& keys, const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  const auto words = keys.list({"fsdp"});
  const auto top = keys.integer({"fsdp_version"});
  auto config = keys.section("fsdp_config");
  const auto shard = keys.ranks({"dp_shard_size"}), replicate = keys.ranks({"dp_replicate_size"});
  if (replicate && *replicate > 1) out.dp_replicate = replicate;
  if (keys.given("deepspeed") || around.deepspeed != nullptr) {
    if (!words.empty()) findings.refuse("fsdp and deepspeed", "axolotl refuses both together");
    apply_deepspeed_key(keys, file, around, out, findings);
  } else if (!words.empty() || keys.given("fsdp_config") || top) {
    const int version = apply_fsdp(config, words, static_cast<int>(top.value_or(1)), out);
    // accelerate's FSDP1 upcasts what trains; axolotl replaces its FSDP2 by a function that does not.
    out.master_dtype = version == 1 ? Setting<std::string>{"float32", "FSDP1: accelerate upcasts what trains"}
                                    : Setting<std::string>{*out.dtype, "axolotl's FSDP2 keeps the loaded type"};
    if (version != 1) out.reduce_dtype = {*out.dtype, "accelerate's policy"};
  } else {
    out.strategy = {"ddp", "neither fsdp nor deepspeed"};
    out.offload = {"none", ""};
    out.master_dtype = {*out.dtype, "parameters are loaded in this type"};
  }
  keys.take("deepspeed");
  const auto ranks = times(shard.value_or(1), replicate.value_or(1));
  if (ranks > 1 && around.world_size > 0 && times(times(ranks, *out.tp), *out.cp) != around.world_size)
    findings.refuse(fmt::format("dp_shard_size x dp_replicate_size = {}", ranks),
                    fmt::format("with tensor_parallel_size {} and context_parallel_size {} that is {} ranks, not {}",
                                *out.tp, *out.cp, times(times(ranks, *out.tp), *out.cp), around.world_size));
}

void read_recomputation(Keys& keys, Resolved& out, Findings& findings) {
  const auto shown = keys.shown("gradient_checkpointing");
  const auto checkpointing = keys.text({"gradient_checkpointing"});
  if (checkpointing && checkpointing->starts_with("offload")) {
    findings.cannot(shown, "checkpoints of layers go to host memory: planned on the device");
    out.recompute = {"full", checkpointing.key};
  } else if (keys.active("gradient_checkpointing")) {
    out.recompute = {"full", checkpointing.key};
  } else if (keys.active("selective_checkpointing")) {
    out.recompute = {"selective", "selective_checkpointing"};
  } else if (!out.recompute) {
    out.recompute = {"none", checkpointing ? checkpointing.key : "default of axolotl"};
  }
  keys.take("selective_checkpointing");
  if (keys.active("activation_offloading"))
    findings.cannot(keys.shown("activation_offloading"),
                    "checkpoints of layers go to host memory: planned on the device with full recomputation");
  keys.take("activation_offloading");
}

}  // namespace

void read_axolotl(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  Keys keys(&file.root, findings);
  out.stack = "pytorch";
  out.model = keys.text({"base_model"});
  keys.take("base_model_config");
  keys.refuse(kRefuse);
  out.micro_batch = keys.integer({"micro_batch_size"}).or_default(1, kTrainer);
  out.grad_accumulation = keys.integer({"gradient_accumulation_steps"});
  if (const auto whole = keys.integer({"batch_size"}); whole && !out.grad_accumulation)
    out.grad_accumulation = {std::max<std::int64_t>(1, *whole / std::max<std::int64_t>(1, *out.micro_batch)),
                             "batch_size / micro_batch_size"};
  out.grad_accumulation = out.grad_accumulation.or_default(1, kTrainer);
  out.seq_length = keys.integer({"sequence_len"}).or_default(512, kTrainer);
  out.tp = keys.ranks({"tensor_parallel_size"}).or_default(1, kTrainer);
  out.cp = keys.ranks({"context_parallel_size", "sequence_parallel_degree"}).or_default(1, kTrainer);
  if (const auto ep = keys.ranks({"expert_parallel_size"})) out.ep = ep;
  const auto packing = keys.flag({"sample_packing"});
  out.packing = packing.value_or(false) ? Packing::kDocuments : Packing::kNone;
  out.packing_key = packing.key;
  if (*out.cp > 1) out.cp_comm_type = {packing.value_or(false) ? "all_gather" : "p2p", "context_parallel_size"};
  keys.take("ring_attn_func");
  keys.take("heads_k_stride");
  if (*out.cp > 1 && packing.value_or(false) && *out.micro_batch > 1)
    findings.refuse("context_parallel_size with sample_packing", "axolotl then takes micro_batch_size 1 only");
  read_types(keys, out);
  read_sharding(keys, file, around, out, findings);
  apply_accelerator_config(keys, out);
  read_recomputation(keys, out, findings);
  read_adapter(keys, out, findings);
  if (out.adapter) out.master_dtype = {"float32", "adapters are float32"};
  out.optimizer_states = *out.master_dtype;
  apply_optimizer(keys.text({"optimizer"}).or_default("adamw_torch_fused", kTrainer), around, out, findings);
  if (!out.lr) out.lr = keys.number({"learning_rate"});
  keys.take("learning_rate");
  if (!out.weight_decay) out.weight_decay = keys.number({"weight_decay"}).or_default(0.0, kTrainer);
  keys.take("weight_decay");
  const auto beta1 = keys.number({"adam_beta1"}), beta2 = keys.number({"adam_beta2"});
  if ((beta1 || beta2) && !out.betas)
    out.betas = {{beta1.value_or(0.9), beta2.value_or(0.999)}, "adam_beta1, adam_beta2"};
  out.eps = keys.number({"adam_epsilon"});
  if (!out.max_grad_norm) out.max_grad_norm = keys.number({"max_grad_norm"});
  keys.take("max_grad_norm");
  apply_scheduler(keys.text({"lr_scheduler"}).or_default("cosine", kTrainer), out, findings);
  out.warmup_steps = keys.integer({"warmup_steps"});
  keys.no_effect(std::array{KeyReason{"warmup_ratio", "the number of steps follows from the data"}});
  out.max_steps = keys.integer({"max_steps"});
  out.epochs = keys.integer({"num_epochs"});
  if (keys.active("cut_cross_entropy") || keys.active("liger_fused_linear_cross_entropy"))
    out.fused_linear_ce = {true,
                           keys.active("cut_cross_entropy") ? "cut_cross_entropy" : "liger_fused_linear_cross_entropy"};
  else if (has_plugin(keys, "CutCrossEntropyPlugin") && !keys.given("cut_cross_entropy"))
    out.fused_linear_ce = {true, "plugins: CutCrossEntropyPlugin"};
  else if (keys.active("chunked_cross_entropy"))
    out.chunked_ce = {true, "chunked_cross_entropy"};
  for (const auto* each :
       {"cut_cross_entropy", "liger_fused_linear_cross_entropy", "chunked_cross_entropy", "liger_cross_entropy"})
    keys.take(each);
  if (keys.active("plugins"))
    if (has_plugin(keys, "kd.KDPlugin")) findings.refuse("plugins: KDPlugin", "distillation has two models");
  findings.ignored.reserve(64);
  out.neftune = keys.number({"neftune_noise_alpha"});
  if (const auto unfrozen = keys.list({"unfrozen_parameters"}); !unfrozen.empty()) {
    // Regular expressions over parameters, with ranges of rows; ours are patterns over modules.
    findings.cannot("unfrozen_parameters", fmt::format("only parameters that match {} expressions train: planned with "
                                                       "all parameters, an upper bound",
                                                       unfrozen.size()));
  }
  keys.cannot(kCannot);
  keys.no_effect(kNoEffect);
  keys.leftovers(kTrainer);
}

}  // namespace automodel::foreign
