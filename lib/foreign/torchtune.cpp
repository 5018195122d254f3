// torchtune's YAML (commit bd2a0fc7). Whether a run is distributed stands only in the recipe's name on its command
// line, which the header comment repeats: the number of ranks decides here.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "foreign/model_name.h"
#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

constexpr const char* kTrainer = "torchtune";
constexpr auto kNoEffect = std::to_array<KeyReason>({
    {"metric_logger", "logging"},
    {"log_*", "logging"},
    {"profiler", "logging"},
    {"compile", "which kernel computes, not what"},
    {"output_dir", "saving"},
    {"checkpointer", "loading and saving"},
    {"resume_from_checkpoint", "saving"},
    {"save_*", "saving"},
    {"enable_async_checkpointing", "saving"},
    {"keep_last_n_checkpoints", "saving"},
    {"seed", "initial values and order"},
    {"shuffle", "order of rows"},
    {"dataset_val", "validation"},
    {"batch_size_val", "validation"},
    {"run_val_every_n_steps", "validation"},
    {"device", "the plan is for GPUs"},
    {"custom_sharded_layers", "units are decoder layers and the rest"},
    {"fsdp_reshard_after_forward", "read"},
    {"tensor_parallel_plan", "the family's own plan"},
    {"max_steps_per_epoch", "the number of steps"},
    {"cudnn_deterministic_mode", "which kernel computes, not what"},
    {"tokenizer", "its length is read"},
    {"dataset", "which rows are read: the plan uses rows of the full length"},
    {"data_parallel_shard_dim", "the rest of the ranks"},
});
constexpr auto kCannot = std::to_array<KeyReason>({
    {"optimizer_in_bwd",
     "gradients are freed during the backward pass: planned with all of them, so memory is overstated"},
    {"enable_activation_offloading", "activations in host memory: planned on the device"},
    {"use_fp8", "which layers use float8 is decided when it runs; planned in bfloat16"},
});
constexpr auto kRefuse = std::to_array<KeyReason>({
    {"ref_checkpointer", "preference optimization has two models"},
    {"teacher_model", "distillation has two models"},
    {"teacher_checkpointer", "distillation has two models"},
    {"kd_loss", "distillation has two models"},
    {"quantizer", "quantization-aware training has no equivalent"},
    {"reward_and_value_model", "reinforcement learning has several models"},
    {"policy_model", "reinforcement learning has several models"},
    {"prompt", "generation is not training"},
});
/// Recipes of `tune run` that are not fine-tuning.
constexpr auto kOtherRecipes = std::to_array<std::string_view>(
    {"dpo", "ppo", "grpo", "qat_", "knowledge_distillation", "eleuther_eval", "quantize", "generate", "early_exit"});

/// The word after `phrase` in a comment of the file.
std::string word_after(std::string_view text, std::string_view phrase) {
  const auto found = text.find(phrase);
  if (found == std::string_view::npos) return {};
  text.remove_prefix(found + phrase.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return std::string(text.substr(0, text.find_first_of(" \n\r\t")));
}

/// "--nproc_per_node 4 full_finetune_distributed" and "lora_finetune_single_device".
std::string recipe_name(std::string_view text) {
  for (auto found = text.find("tune run "); found != std::string_view::npos;
       found = text.find("tune run ", found + 1)) {
    const auto line = text.substr(found + 9, text.find('\n', found) - found - 9);
    const auto end = line.find(" --config");
    if (end == std::string_view::npos) continue;
    const auto words = line.substr(0, end);
    return std::string(words.substr(words.rfind(' ') + 1));
  }
  return {};
}

std::string last(const std::string& text, char separator) {
  return text.substr(text.rfind(separator) + 1);
}

void read_model(Keys& keys, const SourceFile& file, Resolved& out, Findings& findings) {
  auto model = keys.section("model");
  const auto component = model.text({"_component_"});
  if (component) out.builder = last(*component, '.');
  const auto download = word_after(file.text, "tune download");
  auto folder = keys.section("checkpointer").text({"checkpoint_dir"}).value_or("");
  while (folder.ends_with('/')) folder.pop_back();
  const auto named = with_last_part(last(folder, '/'));
  if (download.find('/') != std::string::npos)
    out.model = {download, "tune download"};
  else if (!named.empty())
    out.model = {named, "checkpointer.checkpoint_dir"};
  else
    findings.ask("model._component_: " + out.builder, "a builder of torchtune's; the file names no model",
                 "--model NAME");
  const bool quantized = out.builder.starts_with("qlora_") || model.flag({"quantize_base"}).value_or(false);
  if (out.builder.starts_with("lora_") || out.builder.starts_with("qlora_") || out.builder.starts_with("dora_") ||
      model.given("lora_attn_modules")) {
    Adapter adapter;
    adapter.dim = model.integer({"lora_rank"}).value_or(8);
    adapter.alpha = model.integer({"lora_alpha"}).value_or(16);
    adapter.dropout = model.number({"lora_dropout"}).value_or(0.0);
    adapter.dora = model.flag({"use_dora"}).value_or(false);
    for (auto& each : model.list({"lora_attn_modules"}))
      adapter.targets.push_back(each == "output_proj" ? "o_proj" : each);
    if (model.flag({"apply_lora_to_mlp"}).value_or(false))
      for (const auto* each : {"gate_proj", "up_proj", "down_proj"}) adapter.targets.emplace_back(each);
    if (model.flag({"apply_lora_to_output"}).value_or(false)) adapter.targets.emplace_back("lm_head");
    out.adapter = {adapter, "model.lora_*"};
    if (quantized) out.quantization = {"nf4-double", component.key};
  }
  model.leftovers(kTrainer);
}

}  // namespace

void read_torchtune(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  Keys keys(&file.root, findings);
  out.stack = "pytorch";
  read_model(keys, file, out, findings);
  const auto recipe = recipe_name(file.text);
  for (const auto each : kOtherRecipes)
    if (recipe.find(each) != std::string::npos)
      findings.refuse(recipe, "not fine-tuning of one model: a plan of that would understate memory");
  keys.refuse(kRefuse);
  auto loss = keys.section("loss");
  const auto loss_name = last(loss.text({"_component_"}).value_or(""), '.');
  if (loss_name.find("DPO") != std::string::npos || loss_name.find("PPO") != std::string::npos)
    findings.refuse("loss: " + loss_name, "preference optimization has two models");
  if (loss_name == "LinearCrossEntropyLoss") out.fused_linear_ce = {true, "loss"};
  if (loss_name == "CEWithChunkedOutputLoss") out.chunked_ce = {true, "loss"};
  out.micro_batch = keys.integer({"batch_size"});
  out.grad_accumulation = keys.integer({"gradient_accumulation_steps"}).or_default(1, kTrainer);
  auto tokenizer = keys.section("tokenizer");
  out.seq_length = tokenizer.integer({"max_seq_len"});
  if (!out.seq_length)
    findings.ask("tokenizer.max_seq_len", "is null: the sequence length must be given", "--seq-length N");
  auto dataset = keys.section("dataset");
  out.packing = dataset.flag({"packed"}).value_or(false) ? Packing::kDocuments : Packing::kNone;
  out.packing_key = "dataset.packed";
  const auto type = keys.text({"dtype"}).or_default("bf16", kTrainer);
  out.dtype = {*type == "bf16" ? "bfloat16" : *type == "fp16" ? "float16" : "float32", type.key};
  out.weights_dtype = *out.dtype;
  out.master_dtype = {*out.dtype, "dtype: torchtune keeps no masters"};
  out.reduce_dtype = {*out.dtype, type.key};
  out.optimizer_states = *out.dtype;
  out.tp = keys.ranks({"tensor_parallel_dim"}).or_default(1, kTrainer);
  out.cp = keys.ranks({"context_parallel_dim"}).or_default(1, kTrainer);
  if (*out.cp > 1) out.cp_comm_type = {"all_gather", out.cp.key};
  if (const auto copies = keys.ranks({"data_parallel_replicate_dim"}); copies && *copies > 1) out.dp_replicate = copies;
  const bool several = around.world_size > 1;
  out.strategy = {several ? "fsdp2" : "ddp", several ? "a distributed recipe" : "one device"};
  out.zero_stage = several ? 3 : 0;
  out.defer_gradient_sync = {false, "torchtune reduces gradients after every pass (its issue 1275)"};
  if (!several && around.world_size > 0 && recipe.ends_with("_distributed"))
    findings.note(recipe, "planned as on one device, since there is one rank");
  if (several && recipe.ends_with("_single_device"))
    findings.refuse(recipe, fmt::format("a recipe for one device, not for {} ranks", around.world_size));
  const auto reshard = keys.flag({"fsdp_reshard_after_forward"});
  if (several && reshard && !*reshard) out.reshard_after_forward = reshard;
  const bool offload = keys.flag({"fsdp_cpu_offload"}).value_or(false);
  out.offload = {offload && several ? "params+grads+optimizer" : "none", "fsdp_cpu_offload"};
  const auto recompute = keys.flag({"enable_activation_checkpointing"}).or_default(false, kTrainer);
  out.recompute = {*recompute ? "full" : "none", recompute.key};
  auto optimizer = keys.section("optimizer");
  const auto component = optimizer.text({"_component_"}).or_default("torch.optim.AdamW", kTrainer);
  apply_optimizer(component, around, out, findings);
  out.lr = optimizer.number({"lr"});
  out.weight_decay =
      optimizer.number({"weight_decay"}).or_default(out.optimizer.value_or("") == "sgd" ? 0.0 : 0.01, "torch");
  optimizer.no_effect(std::array{KeyReason{"fused", "which kernel computes, not what"}});
  optimizer.leftovers(kTrainer);
  if (auto scheduler = keys.section("lr_scheduler"); scheduler.given("_component_")) {
    if (scheduler.text({"_component_"})->find("cosine") != std::string::npos)
      apply_scheduler({"cosine", "lr_scheduler"}, out, findings);
    out.warmup_steps = scheduler.integer({"num_warmup_steps"});
  }
  out.max_grad_norm = keys.number({"clip_grad_norm"});
  out.no_clipping = !out.max_grad_norm;
  if (out.no_clipping) out.max_grad_norm.key = "clip_grad_norm: null";
  out.epochs = keys.integer({"epochs"});
  keys.cannot(kCannot);
  keys.no_effect(kNoEffect);
  keys.leftovers(kTrainer);
}

}  // namespace automodel::foreign
