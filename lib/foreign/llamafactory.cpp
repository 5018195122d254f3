// LLaMA-Factory's YAML (commit ff6d4d12): the Trainer's vocabulary with other defaults, and the new "v1" one.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

constexpr const char* kTrainer = "LLaMA-Factory";
constexpr const char* kLogging = "logging";
constexpr const char* kSaving = "saving and evaluation";
constexpr const char* kKernels = "which kernel computes, not what";
constexpr const char* kData = "which rows are read: the plan uses rows of the full length";

constexpr auto kNoEffect = std::to_array<KeyReason>({
    {"template", "a chat template: the model's own is used here"},
    {"dataset*", kData},
    {"eval_dataset", kData},
    {"max_samples", kData},
    {"overwrite_cache", kData},
    {"preprocessing_*", kData},
    {"dataloader_*", kData},
    {"media_dir", kData},
    {"mask_history", kData},
    {"train_on_prompt", kData},
    {"streaming", kData},
    {"buffer_size", kData},
    {"mix_strategy", kData},
    {"interleave_probs", kData},
    {"tokenized_path", kData},
    {"enable_thinking", kData},
    {"data_seed", kData},
    {"group_by_length", kData},
    {"val_size", kData},
    {"train_dataset", kData},
    {"output_dir", kSaving},
    {"logging_*", kLogging},
    {"save_*", kSaving},
    {"plot_loss", kLogging},
    {"overwrite_output_dir", kSaving},
    {"report_to", kLogging},
    {"run_name", kLogging},
    {"swanlab_*", kLogging},
    {"use_swanlab", kLogging},
    {"resume_from_checkpoint", kSaving},
    {"do_train", kSaving},
    {"do_eval", kSaving},
    {"do_predict", kSaving},
    {"eval_*", kSaving},
    {"evaluation_strategy", kSaving},
    {"per_device_eval_batch_size", kSaving},
    {"predict_with_generate", kSaving},
    {"max_new_tokens", kSaving},
    {"sample_backend", kSaving},
    {"load_best_model_at_end", kSaving},
    {"push_to_hub", kSaving},
    {"include_*", kLogging},
    {"ddp_*", "how gradients are reduced"},
    {"trust_remote_code", "no code of a model is run"},
    {"adapter_name_or_path", "adapters to continue"},
    {"flash_attn", kKernels},
    {"use_unsloth*", kKernels},
    {"enable_liger_kernel", kKernels},
    {"kernel_config", kKernels},
    {"model_class", kKernels},
    {"tf32", kKernels},
    {"cache_dir", "where files are"},
    {"seed", "initial values and order"},
    {"warmup_ratio", "the number of steps follows from the data"},
    {"pissa_*", "initial values of adapters"},
    {"gradient_checkpointing", "disable_gradient_checkpointing decides"},
    {"use_reentrant_gc", kKernels},
    {"low_cpu_mem_usage", "how weights are loaded"},
    {"rope_scaling", "frequencies do not change a plan"},
    {"resize_vocab", "a few rows of the vocabulary"},
    {"upcast_layernorm", "a few vectors"},
    {"upcast_lmhead_output", "the loss is float32"},
    {"bias_activation_fusion", kKernels},
    {"apply_rope_fusion", kKernels},
    {"moe_grouped_gemm", kKernels},
    {"*_fusion", kKernels},
    {"masked_softmax_fusion", kKernels},
    {"bias_dropout_fusion", kKernels},
    {"accelerator_config", "how gradients are reduced"},
    {"image_*", kData},
    {"video_*", kData},
    {"init_config", kSaving},
    {"batching_strategy", kData},
    {"stage", "read"},
});
constexpr auto kCannot = std::to_array<KeyReason>({
    {"additional_target", "whole modules are trained beside the adapters: planned as adapters only"},
    {"use_rslora", "another scale of the adapters"},
    {"loraplus_lr_ratio", "another rate for B"},
    {"mixture_of_depths", "tokens skip layers: planned without, an upper bound"},
    {"use_llama_pro", "only every stride-th layer trains: planned with all parameters, an upper bound"},
    {"freeze_extra_modules", "further modules train"},
    {"layernorm_epsilon_override", "another epsilon"},
});
constexpr auto kRefuse = std::to_array<KeyReason>({
    {"use_galore", "low-rank projected optimizer states have no equivalent; AdamW would overstate memory by far"},
    {"use_apollo", "low-rank projected optimizer states have no equivalent; AdamW would overstate memory by far"},
    {"use_badam", "blocks of layers train in turn; AdamW would overstate memory by far"},
    {"use_adam_mini", "one rate per block has no equivalent; AdamW would overstate memory"},
    {"shift_attn", "S2 attention has no equivalent"},
    {"use_kt", "KTransformers has no equivalent"},
    {"pref_loss", "preference optimization has two models"},
    {"ref_model", "preference optimization has two models"},
    {"reward_model", "reinforcement learning has several models"},
});
/// Keys of mcore_adapter, which the parser takes only in an environment that asks for it.
constexpr auto kMegatronKeys = std::to_array<std::string_view>(
    {"tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size",
     "context_parallel_size", "virtual_pipeline_model_parallel_size", "use_distributed_optimizer",
     "recompute_granularity"});

void read_adapter(Keys& keys, Resolved& out, Findings& findings) {
  const auto kind = keys.text({"finetuning_type"}).or_default("lora", kTrainer);
  const auto bits = keys.integer({"quantization_bit"});
  const auto method = keys.text({"quantization_method"}).value_or("bnb");
  const bool doubled = keys.flag({"double_quantization"}).value_or(true);
  const auto type = keys.text({"quantization_type"}).value_or("nf4");
  if (bits) {
    if ((method != "bnb" && method != "bitsandbytes") || (*bits != 4 && *bits != 8) || type != "nf4")
      return findings.refuse(keys.shown("quantization_bit"), fmt::format("weights of {} have no equivalent", method));
    if (*kind != "lora")
      return findings.refuse(keys.shown("quantization_bit"), "quantized weights train only under adapters");
    out.quantization = {*bits == 8 ? "int8" : doubled ? "nf4-double" : "nf4", bits.key};
  }
  const auto rank = keys.integer({"lora_rank"}).or_default(8, kTrainer);
  const auto alpha = keys.integer({"lora_alpha"}).or_default(2 * *rank, "LLaMA-Factory: 2 * lora_rank");
  const double dropout = keys.number({"lora_dropout"}).value_or(0.0);
  const bool dora = keys.flag({"use_dora"}).value_or(false);
  auto targets = keys.list({"lora_target"});
  out.freeze_vision_tower = keys.flag({"freeze_vision_tower"}).or_default(true, kTrainer);
  out.freeze_projector = keys.flag({"freeze_multi_modal_projector"}).or_default(true, kTrainer);
  out.freeze_language_model = keys.flag({"freeze_language_model"}).or_default(false, kTrainer);
  const auto layers = keys.integer({"freeze_trainable_layers"}).or_default(2, kTrainer);
  keys.take("freeze_trainable_modules");
  if (*kind == "lora") {
    if (targets.empty() || targets[0] == "all") targets.clear();
    out.adapter = {{*rank, *alpha, dropout, dora, targets}, "lora_rank, lora_alpha, lora_dropout, lora_target"};
  } else if (*kind == "freeze") {
    if (!keys.active("use_llama_pro"))
      findings.cannot(fmt::format("freeze_trainable_layers: {}", *layers),
                      "only these layers train: planned with all parameters, an upper bound");
  } else if (*kind != "full") {
    findings.refuse(keys.shown("finetuning_type"), "these adapters have no equivalent");
  }
}

/// USE_MCA=1: the same file is read by mcore_adapter as Megatron's arguments.
void read_megatron_keys(Keys& keys, const char* variable, Resolved& out, Findings& findings) {
  findings.note(fmt::format("{}=1", variable),
                "the file is read as Megatron's: accumulation steps are the pipeline's microbatches");
  out.tp = keys.ranks({"tensor_model_parallel_size"}).or_default(1, kTrainer);
  out.pp = keys.ranks({"pipeline_model_parallel_size"}).or_default(1, kTrainer);
  out.cp = keys.ranks({"context_parallel_size"}).or_default(1, kTrainer);
  out.ep = keys.ranks({"expert_model_parallel_size"}).or_default(1, kTrainer);
  if (*out.ep > 1)
    out.etp =
        keys.ranks({"expert_tensor_parallel_size"}).or_default(*out.tp, "Megatron-LM: tensor_model_parallel_size");
  keys.take("expert_tensor_parallel_size");
  out.vpp = keys.ranks({"virtual_pipeline_model_parallel_size"});
  if (*out.pp > 1) out.pp_schedule = {out.vpp.value_or(1) > 1 ? "MegatronInterleaved" : "1f1b", out.pp.key};
  out.sequence_parallel = {keys.flag({"sequence_parallel"}).value_or(false) && *out.tp > 1, "sequence_parallel"};
  apply_megatron_states(keys.flag({"use_distributed_optimizer"}).value_or(false), "use_distributed_optimizer", out);
  out.overlap_grad_reduce = keys.flag({"overlap_grad_reduce"}).or_default(false, kTrainer);
  out.overlap_param_gather = keys.flag({"overlap_param_gather"}).or_default(false, kTrainer);
  out.offload = {"none", ""};
  const auto granularity = keys.text({"recompute_granularity"}).or_default("none", kTrainer);
  out.recompute = granularity;
  if (*granularity == "selective") out.recompute_modules = {"core_attn"};
  for (const auto* each : {"recompute_method", "recompute_num_layers", "disable_gradient_checkpointing"})
    keys.take(each);
  const auto dispatcher = keys.text({"moe_token_dispatcher_type"});
  if (dispatcher) out.dispatcher = *dispatcher == "flex" ? "deduplicated" : "nccl";
}

void read_sharding(Keys& keys, const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  const bool pure = keys.flag({"pure_bf16"}).value_or(false);
  if (around.accelerate != nullptr) {
    apply_accelerate(*around.accelerate, around, out, findings);
  } else if (keys.given("deepspeed") || around.deepspeed != nullptr) {
    apply_deepspeed_key(keys, file, around, out, findings);
    if (pure) out.master_dtype = {"float32", "DeepSpeed keeps float32 masters"};
  } else if (const auto words = keys.list({"fsdp"}); !words.empty()) {
    auto section = keys.section("fsdp_config");
    apply_fsdp(section, words, 2, out);
    out.reduce_dtype = {*out.dtype, "accelerate's policy"};
  } else {
    out.strategy = {"ddp", "neither deepspeed nor accelerate's FSDP"};
    out.offload = {"none", ""};
  }
  for (const auto* each : {"deepspeed", "fsdp", "fsdp_config"}) keys.take(each);
  if (!out.master_dtype)
    out.master_dtype =
        pure ? Setting<std::string>{"bfloat16", "pure_bf16"} : Setting<std::string>{"float32", "what trains is upcast"};
  const bool upcast = *out.strategy == "ddp" && !out.reduce_dtype && !pure &&
                      keys.text({"finetuning_type"}).value_or("lora") != "lora" && around.deepspeed == nullptr;
  out.weights_dtype = upcast ? "float32" : *out.dtype;
}

void read_optimizer(Keys& keys, const Surroundings& around, Resolved& out, Findings& findings, double rate) {
  if (out.optimizer_states.empty()) out.optimizer_states = out.master_dtype.value_or("float32");
  const auto name = keys.text({"optim"}).or_default("adamw_torch", kTrainer);
  const bool muon = keys.active("use_muon");
  keys.take("use_muon");
  apply_optimizer(muon ? Setting<std::string>{"muon", "use_muon"} : name, around, out, findings);
  const auto lr = keys.number({"learning_rate"});
  if (lr || !out.lr) out.lr = lr.or_default(rate, kTrainer);
  const auto decay = keys.number({"weight_decay"});
  if (decay || !out.weight_decay) out.weight_decay = decay.or_default(0.0, kTrainer);
  if (!out.betas)
    out.betas = {{keys.number({"adam_beta1"}).value_or(0.9), keys.number({"adam_beta2"}).value_or(0.999)},
                 "adam_beta1, adam_beta2"};
  const auto norm = keys.number({"max_grad_norm"});
  if (norm || !out.max_grad_norm) out.max_grad_norm = norm.or_default(1.0, kTrainer);
  apply_scheduler(keys.text({"lr_scheduler_type"}).or_default("linear", kTrainer), out, findings);
  out.warmup_steps = keys.integer({"warmup_steps"});
  if (const auto steps = keys.integer({"max_steps"}); steps && *steps > 0) out.max_steps = steps;
  if (const auto epochs = keys.number({"num_train_epochs"}); epochs && *epochs >= 1)
    out.epochs = {static_cast<std::int64_t>(*epochs), epochs.key};
}

void read_v0(Keys& keys, const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  out.model = keys.text({"model_name_or_path"});
  const auto stage = keys.text({"stage"}).or_default("sft", kTrainer);
  if (*stage != "sft" && *stage != "pt")
    findings.refuse("stage: " + *stage,
                    "policy and reference model, rewards or pairs: planned as fine-tuning it would understate memory");
  keys.refuse(kRefuse);
  out.micro_batch = keys.integer({"per_device_train_batch_size"}).or_default(8, kTrainer);
  out.grad_accumulation = keys.integer({"gradient_accumulation_steps"}).or_default(1, kTrainer);
  out.seq_length = keys.integer({"cutoff_len"}).or_default(2048, kTrainer);
  const bool neat = keys.flag({"neat_packing"}).value_or(false);
  const auto packing = keys.flag({"packing"}).or_default(*stage == "pt", "LLaMA-Factory: true for stage pt");
  out.packing = neat || (*packing && *stage == "pt") ? Packing::kDocuments
                : *packing                           ? Packing::kConcatenated
                                                     : Packing::kNone;
  out.packing_key = neat ? "neat_packing" : packing.key;
  const bool bf16 = keys.flag({"bf16"}).value_or(false), pure = keys.active("pure_bf16"),
             fp16 = keys.flag({"fp16"}).value_or(false);
  out.dtype = bf16 || pure ? Setting<std::string>{"bfloat16", pure ? "pure_bf16" : "bf16"}
              : fp16       ? Setting<std::string>{"float16", "fp16"}
                           : Setting<std::string>{"float32", "neither bf16 nor fp16"};
  const auto set = [&](const char* name) {
    return around.environment && around.environment(name).value_or("0") == "1";
  };
  const char* variable = set("USE_MCA") ? "USE_MCA" : set("USE_MEGATRON_BRIDGE") ? "USE_MEGATRON_BRIDGE" : nullptr;
  const auto* given = std::ranges::find_if(kMegatronKeys, [&](std::string_view each) { return keys.given(each); });
  if (variable != nullptr) {
    read_megatron_keys(keys, variable, out, findings);
  } else {
    if (given != kMegatronKeys.end())
      findings.refuse(
          std::string(*given),
          "LLaMA-Factory takes Megatron's keys only with USE_MCA=1 in the environment: USE_MCA=1 automodel plan ...");
    read_sharding(keys, file, around, out, findings);
    const bool off = keys.flag({"disable_gradient_checkpointing"}).value_or(false);
    out.recompute = {off ? "none" : "full", off ? "disable_gradient_checkpointing" : "default of LLaMA-Factory"};
  }
  apply_accelerator_config(keys, out);
  read_adapter(keys, out, findings);
  if (out.adapter) {
    out.master_dtype = {"float32", "adapters are float32"};
    out.weights_dtype = *out.dtype;
  }
  read_optimizer(keys, around, out, findings, 5e-5);
  out.neftune = keys.number({"neftune_noise_alpha"});
}

void read_v1(Keys& keys, const Surroundings& around, Resolved& out, Findings& findings) {
  out.model = keys.text({"model"});
  out.micro_batch = keys.integer({"micro_batch_size"}).or_default(1, kTrainer);
  out.global_batch = keys.integer({"global_batch_size"});
  out.seq_length = keys.integer({"cutoff_len"}).or_default(2048, kTrainer);
  out.packing = Packing::kNone;
  const auto bf16 = keys.flag({"bf16"}).or_default(true, kTrainer);
  out.dtype = {*bf16 ? "bfloat16" : "float32", bf16.key};
  out.weights_dtype = *out.dtype;
  out.master_dtype = {"float32", "what trains is upcast"};
  out.reduce_dtype = {"float32", "default of LLaMA-Factory"};
  out.offload = {"none", ""};
  const auto recompute = keys.flag({"enable_activation_checkpointing"}).or_default(true, kTrainer);
  out.recompute = {*recompute ? "full" : "none", recompute.key};
  auto mesh = keys.section("dist_config");
  const auto name = mesh.text({"name"}).or_default("ddp", kTrainer);
  if (*name == "fsdp2") {
    out.strategy = {"fsdp2", name.key};
    out.zero_stage = 3;
    if (mesh.flag({"offload_params"}).value_or(false))
      out.offload = {"params+grads+optimizer", "dist_config.offload_params"};
  } else if (*name == "ddp") {
    out.strategy = {"ddp", name.key};
  } else if (*name == "deepspeed" && around.deepspeed != nullptr) {
    apply_deepspeed(around.deepspeed->root, out, findings);
  } else if (*name == "deepspeed") {
    findings.ask("dist_config.name: deepspeed", "its JSON decides the stage", "--from deepspeed FILE too");
  } else {
    findings.refuse("dist_config.name: " + *name, "not among those that are known here");
  }
  if (const auto copies = mesh.ranks({"mp_replicate_size", "dp_replicate_size"}); copies && *copies > 1)
    out.dp_replicate = copies;
  if (const auto cp = mesh.ranks({"cp_size"}); cp && *cp > 1) {
    out.cp = cp;
    out.cp_comm_type = {mesh.text({"cp_mode"}).value_or("ulysses") == "ulysses" ? "a2a" : "p2p", "dist_config.cp_mode"};
  }
  mesh.no_effect(std::array{KeyReason{"*", "how weights are loaded and saved"}});
  auto peft = keys.section("peft_config");
  if (peft.given("name")) {
    const auto kind = peft.text({"name"});
    if (*kind != "lora") findings.refuse("peft_config.name: " + *kind, "these adapters have no equivalent");
    const auto rank = peft.integer({"r", "lora_rank"}).or_default(8, kTrainer);
    auto targets = peft.list({"target_modules", "lora_target"});
    if (!targets.empty() && (targets[0] == "all" || targets[0] == "all-linear")) targets.clear();
    out.adapter = {{*rank, peft.integer({"lora_alpha"}).value_or(2 * *rank),
                    peft.number({"lora_dropout"}).value_or(0.0), false, targets},
                   "peft_config"};
    peft.leftovers(kTrainer);
  }
  if (*out.strategy == "ddp" && !out.adapter && around.deepspeed == nullptr) out.weights_dtype = *out.master_dtype;
  auto quantization = keys.section("quant_config");
  if (quantization.given("name")) {
    if (*quantization.text({"name"}) != "bnb")
      findings.refuse(quantization.shown("name"), "these weights have no equivalent");
    if (!out.adapter) findings.refuse(quantization.shown("name"), "quantized weights train only under adapters");
    out.quantization = {quantization.integer({"quantization_bit"}).value_or(4) == 8 ? "int8" : "nf4-double",
                        "quant_config"};
  }
  read_optimizer(keys, around, out, findings, 1e-4);
}

}  // namespace

void read_llamafactory(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  Keys keys(&file.root, findings);
  out.stack = "pytorch";
  if (keys.given("model") && !keys.given("model_name_or_path"))
    read_v1(keys, around, out, findings);
  else
    read_v0(keys, file, around, out, findings);
  keys.cannot(kCannot);
  keys.no_effect(kNoEffect);
  keys.leftovers(kTrainer);
}

}  // namespace automodel::foreign
