// TrainingArguments of transformers 5.23 as command-line arguments or YAML, and TRL's SFTConfig (commit f2cd5771).
#include <array>

#include <fmt/format.h>

#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

constexpr const char* kLogging = "logging";
constexpr const char* kSaving = "saving and evaluation";
constexpr const char* kKernels = "which kernel computes, not what";
constexpr const char* kData = "which rows are read: the plan uses rows of the full length";

constexpr auto kNoEffect = std::to_array<KeyReason>({
    {"output_dir", kSaving},
    {"overwrite_output_dir", kSaving},
    {"save_*", kSaving},
    {"eval_*", kSaving},
    {"evaluation_strategy", kSaving},
    {"do_eval", kSaving},
    {"do_train", kSaving},
    {"do_predict", kSaving},
    {"per_device_eval_batch_size", kSaving},
    {"load_best_model_at_end", kSaving},
    {"resume_from_checkpoint", kSaving},
    {"push_to_hub*", kSaving},
    {"hub_*", kSaving},
    {"metric_for_best_model", kSaving},
    {"greater_is_better", kSaving},
    {"logging_*", kLogging},
    {"log_*", kLogging},
    {"report_to", kLogging},
    {"run_name", kLogging},
    {"disable_tqdm", kLogging},
    {"wandb_*", kLogging},
    {"include_*", kLogging},
    {"tf32", kKernels},
    {"attn_implementation", kKernels},
    {"torch_compile*", kKernels},
    {"use_cache", kKernels},
    {"gradient_checkpointing_kwargs", kKernels},
    {"model_revision", "the sizes are the same"},
    {"trust_remote_code", "no code of a model is run"},
    {"use_fast_tokenizer", kData},
    {"tokenizer_*", kData},
    {"chat_template*", kData},
    {"dataset_*", kData},
    {"dataset", kData},
    {"dataloader_*", kData},
    {"data_path", kData},
    {"data_*", kData},
    {"eval_data_path", kData},
    {"lazy_preprocess", kData},
    {"remove_unused_columns", kData},
    {"preprocessing_*", kData},
    {"group_by_length", kData},
    {"max_train_samples", kData},
    {"validation_*", kData},
    {"train_file", kData},
    {"assistant_only_loss", kData},
    {"completion_only_loss", kData},
    {"eos_token", kData},
    {"pad_token", kData},
    {"max_samples", kData},
    {"padding_free", kKernels},
    {"seed", "initial values and order"},
    {"data_seed", "initial values and order"},
    {"ddp_*", "how gradients are reduced"},
    {"local_rank", "set by the launcher"},
    {"env", "environment of the run"},
    {"full_determinism", kKernels},
    {"fsdp_transformer_layer_cls_to_wrap", "units are decoder layers"},
    {"fsdp_min_num_params", "units are decoder layers"},
    {"warmup_ratio", "the number of steps follows from the data"},
    {"lr_scheduler_kwargs", "learning rates of a plan do not matter"},
    {"accelerator_config", "how gradients are reduced"},
    {"average_tokens_across_devices", "how gradients are reduced"},
    {"cache_dir", "where files are"},
    {"config_name", "the model's own"},
    {"low_cpu_mem_usage", "how weights are loaded"},
});
constexpr auto kCannot = std::to_array<KeyReason>({
    {"lora_modules_to_save", "whole modules are trained beside the adapters: planned as adapters only"},
    {"use_rslora", "another scale of the adapters"},
    {"activation_offloading", "activations in host memory: planned on the device"},
    {"auto_find_batch_size", "the batch is searched when the run starts"},
    {"torch_empty_cache_steps", "memory is given back between steps"},
    {"label_smoothing_factor", "another loss"},
});
constexpr auto kRefuse = std::to_array<KeyReason>({
    {"beta", "preference optimization has two models"},
    {"ref_model_name_or_path", "preference optimization has two models"},
    {"reward_model_path", "reinforcement learning has several models"},
    {"reward_funcs", "reinforcement learning generates while it trains"},
    {"teacher_model_name_or_path", "distillation has two models"},
    {"group_by_modality_length", "vision models have no equivalent"},
    {"vision_tower", "vision models have no equivalent"},
});

/// What differs between the classes.
struct Class {
  const char* name;
  bool trl;
};

void read_types(Keys& keys, const Class& trainer, const Surroundings& around, Resolved& out) {
  const auto bf16 = keys.flag({"bf16"}), fp16 = keys.flag({"fp16"});
  const auto loaded = keys.text({"dtype", "torch_dtype"});
  if (fp16.value_or(false))
    out.dtype = {"float16", "fp16"};
  else if (bf16.value_or(trainer.trl && around.accelerate == nullptr))
    out.dtype = {"bfloat16", bf16 ? "bf16" : "default of TRL"};
  else if (around.accelerate == nullptr || keys.given("bf16"))
    out.dtype = {loaded.value_or("float32") == "bfloat16" ? "bfloat16" : "float32",
                 loaded ? loaded.key : fmt::format("default of {}", trainer.name)};
  out.weights_dtype = loaded.value_or("float32");
  if (out.weights_dtype == "auto") out.weights_dtype = "";
  if (out.weights_dtype == "fp32") out.weights_dtype = "float32";
}

void read_adapter(Keys& keys, Resolved& out, Findings& findings) {
  const bool peft = keys.flag({"use_peft", "use_lora", "lora_enable"}).value_or(false);
  const bool four = keys.flag({"load_in_4bit"}).value_or(false), eight = keys.flag({"load_in_8bit"}).value_or(false);
  const bool nested = keys.flag({"use_bnb_nested_quant"}).value_or(false);
  Adapter adapter;
  adapter.dim = keys.integer({"lora_r"}).value_or(16);
  adapter.alpha = keys.integer({"lora_alpha"}).value_or(32);
  adapter.dropout = keys.number({"lora_dropout"}).value_or(0.05);
  adapter.dora = keys.flag({"use_dora"}).value_or(false);
  adapter.targets = keys.list({"lora_target_modules"});
  keys.take("bnb_4bit_quant_type");
  keys.take("lora_task_type");
  if (four || eight) {
    if (!peft)
      return findings.refuse(four ? "load_in_4bit" : "load_in_8bit",
                             "quantized weights train only under adapters (use_peft)");
    out.quantization = {eight ? "int8" : nested ? "nf4-double" : "nf4", eight ? "load_in_8bit" : "load_in_4bit"};
  }
  if (!peft) return;
  if (adapter.targets.empty())
    findings.cannot("lora_target_modules (default)",
                    "PEFT chooses modules by the model's class: planned on all linear layers, an upper bound");
  if (adapter.targets.size() == 1 && adapter.targets[0] == "all-linear") adapter.targets.clear();
  out.adapter = {adapter, "lora_r, lora_alpha, lora_dropout, lora_target_modules"};
}

void read_sharding(Keys& keys, const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  const auto words = keys.list({"fsdp"});
  out.offload = {"none", ""};
  if (around.accelerate != nullptr) {
    apply_accelerate(*around.accelerate, around, out, findings);
    if (!out.dtype) out.dtype = {"float32", "default of accelerate"};
  } else if (keys.given("deepspeed") || around.deepspeed != nullptr) {
    apply_deepspeed_key(keys, file, around, out, findings);
  } else if (!words.empty()) {
    // fsdp_config is a mapping or a JSON file.
    std::optional<SourceFile> named;
    if (const auto* node = file.root.find("fsdp_config");
        node != nullptr && node->value.kind == config::Node::Kind::kScalar && !node->value.text.empty())
      named = around.referenced(node->value.text, file);
    keys.take("fsdp_config");
    auto section = named ? Keys(&named->root, findings, "fsdp_config") : keys.section("fsdp_config");
    apply_fsdp(section, words, 2, out);
    if (*out.dtype != "float32") {
      out.master_dtype = {"float32", "accelerate upcasts what trains"};
      out.reduce_dtype = {*out.dtype, "accelerate's policy"};
    }
  } else {
    out.strategy = {"ddp", "neither fsdp nor deepspeed"};
    if (around.world_size > 1)
      findings.note("one process per GPU", "with torchrun or accelerate; without, the Trainer uses DataParallel");
  }
  keys.take("deepspeed");
  keys.take("fsdp_config");
  if (!out.master_dtype)
    out.master_dtype = {out.weights_dtype.empty() ? *out.dtype : out.weights_dtype,
                        "parameters are loaded in this type"};
  // FSDP's policy of types, whatever it shards.
  if (out.reduce_dtype && out.master_dtype.value_or("") == "float32") out.weights_dtype = *out.dtype;
}

void read_class(const Class& trainer, const SourceFile& file, const Surroundings& around, Resolved& out,
                Findings& findings) {
  Keys keys(&file.root, findings);
  out.stack = "pytorch";
  out.model = keys.text({"model_name_or_path"});
  keys.refuse(kRefuse);
  out.micro_batch =
      keys.integer({"per_device_train_batch_size", "per_gpu_train_batch_size"}).or_default(8, trainer.name);
  out.grad_accumulation = keys.integer({"gradient_accumulation_steps"}).or_default(1, trainer.name);
  out.seq_length = keys.integer({"max_length", "max_seq_length", "model_max_length", "block_size", "cutoff_len"});
  if (trainer.trl) out.seq_length = out.seq_length.or_default(1024, trainer.name);
  const auto packing = keys.flag({"packing"});
  out.packing = packing.value_or(false) ? Packing::kDocuments : Packing::kNone;
  out.packing_key = "packing";
  for (const auto* each : {"packing_strategy", "eval_packing"}) keys.take(each);
  read_types(keys, trainer, around, out);
  apply_accelerator_config(keys, out);
  read_sharding(keys, file, around, out, findings);
  const auto checkpointing = keys.flag({"gradient_checkpointing"}).or_default(trainer.trl, trainer.name);
  // Megatron-LM builds a model of its own, which the Trainer's switch does not reach.
  const bool megatron = out.stack == "transformer_engine";
  if (*checkpointing && !megatron) out.recompute = {"full", checkpointing.key};
  if (!out.recompute) out.recompute = {"none", megatron ? "default of Megatron-LM" : checkpointing.key};
  read_adapter(keys, out, findings);
  if (out.adapter) {
    out.master_dtype = {"float32", "adapters are float32"};
    out.weights_dtype = *out.dtype;
  }
  if (out.optimizer_states.empty()) out.optimizer_states = *out.master_dtype;
  const auto name = keys.text({"optim"});
  if (!out.optimizer || name)
    apply_optimizer(name.or_default("adamw_torch_fused", trainer.name), around, out, findings);
  const auto number = [&](Setting<double>& target, Keys::Names names, std::optional<double> fallback) {
    const auto value = keys.number(names);
    if (value || !target) target = fallback ? value.or_default(*fallback, trainer.name) : value;
  };
  number(out.lr, {"learning_rate"}, trainer.trl ? 2e-5 : 5e-5);
  number(out.weight_decay, {"weight_decay"}, 0.0);
  number(out.eps, {"adam_epsilon"}, {});
  number(out.max_grad_norm, {"max_grad_norm"}, 1.0);
  const auto beta1 = keys.number({"adam_beta1"}), beta2 = keys.number({"adam_beta2"});
  if (beta1 || beta2) out.betas = {{beta1.value_or(0.9), beta2.value_or(0.999)}, "adam_beta1, adam_beta2"};
  apply_scheduler(keys.text({"lr_scheduler_type"}).or_default("linear", trainer.name), out, findings);
  out.warmup_steps = keys.integer({"warmup_steps"});
  if (const auto steps = keys.integer({"max_steps"}); steps && *steps > 0) out.max_steps = steps;
  if (const auto epochs = keys.number({"num_train_epochs"}); epochs && *epochs >= 1)
    out.epochs = {static_cast<std::int64_t>(*epochs), epochs.key};
  if (keys.flag({"use_liger_kernel", "use_liger"}).value_or(false)) out.fused_linear_ce = {true, "use_liger_kernel"};
  out.neftune = keys.number({"neftune_noise_alpha"});
  keys.cannot(kCannot);
  keys.no_effect(kNoEffect);
  keys.leftovers(trainer.name);
}

}  // namespace

void read_trl(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  read_class({"TRL", true}, file, around, out, findings);
}

void read_hf_trainer(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  read_class({"the Trainer", false}, file, around, out, findings);
}

}  // namespace automodel::foreign
