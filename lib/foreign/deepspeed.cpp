// DeepSpeed's JSON (runtime/config.py of DeepSpeed edaa7221): alone, or named by another trainer's file.
#include <array>

#include <fmt/format.h>

#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

constexpr auto kNoEffect = std::to_array<KeyReason>({
    {"steps_per_print", "logging"},
    {"wall_clock_breakdown", "logging"},
    {"dump_state", "logging"},
    {"tensorboard", "logging"},
    {"wandb", "logging"},
    {"csv_monitor", "logging"},
    {"flops_profiler", "logging"},
    {"comms_logger", "logging"},
    {"prescale_gradients", "the scale of gradients does not matter to a plan"},
    {"gradient_predivide_factor", "the scale of gradients does not matter to a plan"},
    {"zero_allow_untested_optimizer", "a check of DeepSpeed's"},
    {"zero_force_ds_cpu_optimizer", "a check of DeepSpeed's"},
    {"activation_checkpointing", "configures the function, does not switch recomputation on"},
    {"communication_data_type", "the type of messages follows the type of gradients"},
    {"seq_parallel_communication_data_type", "the type of messages follows the type of computation"},
    {"disable_allgather", "how parameters are gathered"},
    {"checkpoint", "saving"},
    {"memory_breakdown", "logging"},
});
constexpr auto kZeroNoEffect = std::to_array<KeyReason>({
    {"*", "buffer sizes and overlap of DeepSpeed's engine"},
});
constexpr auto kTypeNoEffect = std::to_array<KeyReason>({
    {"*", "the loss scale adapts itself"},
});
constexpr auto kZeroCannot = std::to_array<KeyReason>({
    {"zero_hpz_partition_size", "a second copy of the parameters within a machine"},
    {"mics_shard_size", "MiCS shards over part of the ranks"},
    {"zero_quantized_weights", "weights are quantized for communication"},
    {"zero_quantized_nontrainable_weights", "weights are quantized for communication"},
    {"zero_quantized_gradients", "gradients are quantized for communication"},
    {"zenflow", "part of the update runs on the CPU"},
});
constexpr auto kCannot = std::to_array<KeyReason>({
    {"curriculum_learning", "the length changes during training"},
    {"data_efficiency", "the data changes during training"},
    {"compression_training", "weights are pruned or quantized during training"},
    {"autotuning", "sizes are searched when the run starts"},
    {"elasticity", "the batch follows the number of ranks"},
    {"pipeline", "pipelines of DeepSpeed are built in Python"},
    {"progressive_layer_drop", "layers are skipped at random"},
    {"sparse_attention", "another attention"},
    {"aio", "offload to NVMe"},
});

bool is_auto(Keys& keys, std::string_view name) {
  return keys.given(name) && keys.shown(name).ends_with(": auto");
}

/// A number, or nothing for "auto".
Setting<double> number(Keys& keys, std::string_view name) {
  if (is_auto(keys, name)) return keys.take(name), Setting<double>{};
  return keys.number({name});
}

Setting<std::int64_t> integer(Keys& keys, std::string_view name) {
  if (is_auto(keys, name)) return keys.take(name), Setting<std::int64_t>{};
  return keys.integer({name});
}

/// Where both name a number, it must be the same one; DeepSpeed's holds where the trainer names none.
void fill(const Setting<std::int64_t>& theirs, Setting<std::int64_t>& ours, Findings& findings) {
  if (!theirs) return;
  if (ours && *ours != *theirs)
    return findings.refuse(fmt::format("{}: {}", theirs.key, *theirs),
                           fmt::format("{} says {}, and the Trainer refuses two numbers", ours.key, *ours));
  ours = theirs;
}

void apply_zero(Keys zero, Resolved& out, Findings& findings) {
  const auto stage = zero.integer({"stage"});
  out.zero_stage = static_cast<int>(std::clamp<std::int64_t>(stage.value_or(0), 0, 3));
  if (stage && (*stage < 0 || *stage > 3)) findings.refuse(zero.shown("stage"), "ZeRO has the stages 0 to 3");
  out.strategy = {out.zero_stage == 0 ? "ddp" : "megatron_fsdp",
                  fmt::format("zero_optimization.stage {}", out.zero_stage)};
  const auto device = [&](std::string_view key) {
    const auto name = zero.section(key).text({"device"}).value_or("none");
    if (name == "nvme") findings.cannot(zero.path(key) + ": nvme", "offload to NVMe: planned without it");
    return name == "cpu";
  };
  const bool optimizer = device("offload_optimizer") || zero.flag({"cpu_offload"}).value_or(false);
  const bool parameters = device("offload_param") || zero.flag({"cpu_offload_params"}).value_or(false);
  const auto key = zero.path(optimizer ? "offload_optimizer" : "offload_param");
  if (optimizer && parameters) {
    out.offload = {"params+optimizer", key};
  } else if (optimizer) {
    out.offload = {"optimizer", key};
    say_partial_offload(key + " without offload_param", "the optimizer", findings);
  } else if (parameters) {
    out.offload = {"params", key};
    say_partial_offload(key + " without offload_optimizer", "parameters", findings);
  } else {
    out.offload = {"none", "zero_optimization"};
  }
  zero.cannot(kZeroCannot);
  zero.no_effect(kZeroNoEffect);
}

}  // namespace

void apply_deepspeed(const config::Node& node, Resolved& out, Findings& findings) {
  Keys keys(&node, findings, "deepspeed");
  apply_zero(keys.section("zero_optimization"), out, findings);
  fill(integer(keys, "train_micro_batch_size_per_gpu"), out.micro_batch, findings);
  fill(integer(keys, "gradient_accumulation_steps"), out.grad_accumulation, findings);
  fill(integer(keys, "train_batch_size"), out.global_batch, findings);
  for (const auto* type : {"bf16", "fp16"}) {
    auto section = keys.section(type);
    if (is_auto(section, "enabled")) {
      section.take("enabled");
    } else if (section.flag({"enabled"}).value_or(false)) {
      out.dtype = {type[0] == 'b' ? "bfloat16" : "float16", fmt::format("deepspeed.{}.enabled", type)};
    }
    section.no_effect(kTypeNoEffect);
  }
  if (!out.dtype) out.dtype = {"float32", "default of DeepSpeed"};
  out.master_dtype = {"float32", "DeepSpeed keeps float32 masters"};
  out.weights_dtype = *out.dtype;
  const auto sums = keys.section("data_types").text({"grad_accum_dtype"});
  const bool wide = sums && (*sums == "fp32" || *sums == "float32");
  out.grad_accum_dtype = {wide ? "float32" : *out.dtype, sums ? sums.key : "default of DeepSpeed"};
  if (auto optimizer = keys.section("optimizer"); optimizer.given("type")) {
    const auto name = optimizer.text({"type"});
    auto parameters = optimizer.section("params");
    apply_optimizer(name, {}, out, findings);
    if (*name == "Adam" && !parameters.flag({"adam_w_mode"}).value_or(true)) out.optimizer = {"adam", name.key};
    const auto take = [&](std::string_view key, Setting<double>& target) {
      if (const auto value = number(parameters, key)) target = value;
    };
    take("lr", out.lr);
    take("eps", out.eps);
    take("weight_decay", out.weight_decay);
    if (parameters.given("betas") && !is_auto(parameters, "betas"))
      if (const auto betas = parameters.list({"betas"}); betas.size() == 2)
        out.betas = {{std::strtod(betas[0].c_str(), nullptr), std::strtod(betas[1].c_str(), nullptr)},
                     parameters.path("betas")};
    parameters.take("betas");
    parameters.no_effect(std::array{KeyReason{"torch_adam", "which kernel"}, KeyReason{"adam_w_mode", "read"}});
    parameters.leftovers("DeepSpeed");
  }
  if (auto scheduler = keys.section("scheduler"); scheduler.given("type")) {
    const auto name = scheduler.text({"type"});
    auto parameters = scheduler.section("params");
    const bool open = is_auto(parameters, "warmup_num_steps") || !parameters.given("warmup_num_steps");
    if (open)
      findings.ignore("scheduler: " + *name,
                      "its numbers come from the Trainer; learning rates do not matter to a plan");
    else
      findings.note(
          "scheduler: " + *name,
          "its warm-up is logarithmic; the recipe has a constant rate. Learning rates do not matter to a plan");
    parameters.take("type");
  }
  if (const auto norm = number(keys, "gradient_clipping")) {
    out.max_grad_norm = norm;
    out.no_clipping = *norm == 0;
  }
  if (const auto tp = keys.section("tensor_parallel").ranks({"autotp_size"}); tp && *tp > 1) out.tp = tp;
  if (const auto sp = keys.ranks({"sequence_parallel_size"}); sp && *sp > 1) {
    out.cp = sp;
    out.cp_comm_type = {"a2a", sp.key};
  }
  keys.cannot(kCannot);
  keys.no_effect(kNoEffect);
  keys.leftovers("DeepSpeed");
}

void apply_deepspeed_key(Keys& keys, const SourceFile& file, const Surroundings& around, Resolved& out,
                         Findings& findings) {
  const auto* node = keys.node({"deepspeed"});
  if (around.deepspeed != nullptr) return apply_deepspeed(around.deepspeed->root, out, findings);
  if (node == nullptr) return;
  if (node->kind == config::Node::Kind::kMap) return apply_deepspeed(*node, out, findings);
  if (const auto read = around.referenced(node->text, file)) apply_deepspeed(read->root, out, findings);
}

void read_deepspeed(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  const Keys keys(&file.root, findings);
  apply_deepspeed(file.root, out, findings);
  for (const auto* name : {"train_batch_size", "train_micro_batch_size_per_gpu"})
    if (keys.given(name) && keys.shown(name).ends_with(": auto") && !out.micro_batch)
      findings.ask(fmt::format("{}: auto", name), "the training arguments fill it in",
                   "'-- --per_device_train_batch_size N'");
  if (!out.grad_accumulation && !(out.micro_batch && out.global_batch))
    out.grad_accumulation = {1, "default of DeepSpeed"};
  findings.ask(
      "model",
      "no model in the file; the training arguments have it: --from hf-trainer FILE, or '-- --model_name_or_path "
      "NAME --max_length N ...'",
      "--model NAME");
  (void)around;
}

}  // namespace automodel::foreign
