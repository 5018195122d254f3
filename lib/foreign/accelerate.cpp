// accelerate's YAML (commit 16cb6eb8): mesh, sharding and types of a run whose Trainer is configured elsewhere.
#include <array>

#include <fmt/format.h>

#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

constexpr auto kNoEffect = std::to_array<KeyReason>({
    {"compute_environment", "how the run starts"},
    {"debug", "how the run starts"},
    {"machine_rank", "how the run starts"},
    {"main_*", "how the run starts"},
    {"rdzv_*", "how the run starts"},
    {"same_network", "how the run starts"},
    {"gpu_ids", "how the run starts"},
    {"enable_cpu_affinity", "how the run starts"},
    {"deepspeed_hostfile", "how the run starts"},
    {"num_machines", "--world-size and --gpus-per-node say it"},
    {"num_processes", "--world-size says it"},
    {"downcast_bf16", "for TPUs"},
    {"tpu_*", "for TPUs"},
    {"command*", "how the run starts"},
    {"use_cpu", "the plan is for GPUs"},
    {"dynamo_config", "which kernel computes, not what"},
    {"ipex_config", "which kernel computes, not what"},
    {"fp8_config", "float8 is reported under mixed_precision"},
});
constexpr auto kZeroNoEffect = std::to_array<KeyReason>({
    {"zero3_*", "how weights are loaded and saved"},
    {"deepspeed_multinode_launcher", "how the run starts"},
    {"deepspeed_hostfile", "how the run starts"},
    {"deepspeed_*filter", "how the run starts"},
    {"seq_parallel_communication_data_type", "messages follow the type of computation"},
    {"deepspeed_moe_layer_cls_names", "how parameters are gathered"},
});

void apply_inline_zero(Keys config, Resolved& out, Findings& findings) {
  const auto stage = config.integer({"zero_stage"}).or_default(2, "accelerate");
  if (*stage < 0 || *stage > 3) findings.refuse(config.shown("zero_stage"), "ZeRO has the stages 0 to 3");
  out.zero_stage = static_cast<int>(std::clamp<std::int64_t>(*stage, 0, 3));
  out.strategy = {out.zero_stage == 0 ? "ddp" : "megatron_fsdp", stage.key};
  const auto device = [&](const char* key) {
    const auto name = config.text({key}).value_or("none");
    if (name == "nvme") findings.cannot(config.path(key) + ": nvme", "offload to NVMe: planned without it");
    return name == "cpu";
  };
  const bool optimizer = device("offload_optimizer_device"), parameters = device("offload_param_device");
  out.offload = {optimizer && parameters ? "params+optimizer"
                 : optimizer             ? "optimizer"
                 : parameters            ? "params"
                                         : "none",
                 "offload_*_device"};
  if (optimizer != parameters)
    say_partial_offload(config.path(optimizer ? "offload_optimizer_device" : "offload_param_device"),
                        optimizer ? "the optimizer" : "parameters", findings);
  if (config.given("gradient_accumulation_steps") && !config.shown("gradient_accumulation_steps").ends_with(": auto") &&
      !out.grad_accumulation)
    out.grad_accumulation = config.integer({"gradient_accumulation_steps"});
  config.take("gradient_accumulation_steps");
  if (config.given("gradient_clipping") && !config.shown("gradient_clipping").ends_with(": auto") && !out.max_grad_norm)
    out.max_grad_norm = config.number({"gradient_clipping"});
  config.take("gradient_clipping");
  out.master_dtype = {"float32", "DeepSpeed keeps float32 masters"};
  if (out.dtype) {
    out.grad_accum_dtype = {*out.dtype, "default of DeepSpeed"};
    out.weights_dtype = *out.dtype;
  }
  config.no_effect(kZeroNoEffect);
  config.leftovers("accelerate");
}

void apply_mesh(Keys config, Resolved& out) {
  const auto size = [&](const char* key) {
    auto value = config.ranks({key});
    return value && *value > 1 ? value : Setting<std::int64_t>{};
  };
  if (const auto copies = size("parallelism_config_dp_replicate_size")) out.dp_replicate = copies;
  if (const auto tp = size("parallelism_config_tp_size")) out.tp = tp;
  config.take("parallelism_config_dp_shard_size");  // the rest of the ranks
  const auto gathers = config.text({"parallelism_config_cp_comm_strategy"}).value_or("allgather");
  if (const auto cp = size("parallelism_config_cp_size")) {
    out.cp = cp;
    out.cp_comm_type = {gathers == "alltoall" ? "p2p" : "all_gather", cp.key};
  }
  if (const auto sp = size("parallelism_config_sp_size")) {
    out.cp = sp;
    out.cp_comm_type = {"a2a", sp.key + " (Ulysses)"};
  }
  config.no_effect(std::array{KeyReason{"parallelism_config_sp_*", "which kernel computes, not what"}});
  config.leftovers("accelerate");
}

void apply_megatron(Keys config, Resolved& out) {
  const auto size = [&](const char* key) { return config.ranks({key}).or_default(1, "accelerate"); };
  out.tp = size("megatron_lm_tp_degree");
  out.pp = size("megatron_lm_pp_degree");
  if (*out.pp > 1) {
    out.pp_schedule = {"1f1b", "megatron_lm_pp_degree"};
    if (const auto count = config.integer({"megatron_lm_num_micro_batches"})) out.grad_accumulation = count;
  }
  out.sequence_parallel = {config.flag({"megatron_lm_sequence_parallelism"}).value_or(false) && *out.tp > 1,
                           "megatron_lm_sequence_parallelism"};
  apply_megatron_states(config.flag({"megatron_lm_use_distributed_optimizer"}).value_or(false),
                        "megatron_lm_use_distributed_optimizer", out);
  if (config.flag({"megatron_lm_recompute_activations"}).value_or(false)) {
    out.recompute = {"selective", "megatron_lm_recompute_activations"};
    out.recompute_modules = {"core_attn"};
  }
  out.max_grad_norm = config.number({"megatron_lm_gradient_clipping"});
  config.leftovers("accelerate");
}

}  // namespace

void apply_megatron_states(bool sharded, const std::string& key, Resolved& out) {
  out.strategy = {sharded ? "megatron_fsdp" : "ddp", key};
  out.zero_stage = sharded ? 1 : 0;
  out.stack = "transformer_engine";
  out.master_dtype = {"float32", "default of Megatron-LM"};
  if (out.dtype) out.weights_dtype = *out.dtype;
  if (out.dtype.value_or("") == "bfloat16") out.grad_accum_dtype = {"float32", "default of Megatron-LM with bf16"};
}

void apply_accelerate(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  Keys keys(&file.root, findings, "accelerate");
  const auto precision = keys.text({"mixed_precision"});
  if (precision && !out.dtype) {
    const auto& name = *precision;
    if (name == "bf16" || name == "fp16") out.dtype = {name == "bf16" ? "bfloat16" : "float16", "mixed_precision"};
    if (name == "fp8") {
      out.dtype = {"bfloat16", "mixed_precision"};
      findings.cannot("mixed_precision: fp8", "which layers use float8 is decided when it runs; planned in bfloat16");
    }
  }
  const auto kind = keys.text({"distributed_type"}).or_default("NO", "accelerate");
  out.offload = {"none", kind.key};
  auto fsdp = keys.section("fsdp_config"), zero = keys.section("deepspeed_config"),
       megatron = keys.section("megatron_lm_config");
  apply_mesh(keys.section("parallelism_config"), out);
  if (*kind == "FSDP") {
    apply_fsdp(fsdp, {}, 1, out);
    if (out.dtype && *out.dtype != "float32") {
      out.master_dtype = {"float32", "accelerate upcasts what trains"};
      out.reduce_dtype = {*out.dtype, "accelerate's policy"};
    }
  } else if (*kind == "DEEPSPEED") {
    if (const auto named = zero.text({"deepspeed_config_file"})) {
      zero.no_effect(kZeroNoEffect);
      if (around.deepspeed != nullptr)
        apply_deepspeed(around.deepspeed->root, out, findings);
      else if (const auto read = around.referenced(*named, file))
        apply_deepspeed(read->root, out, findings);
    } else if (around.deepspeed != nullptr) {
      apply_deepspeed(around.deepspeed->root, out, findings);
    } else {
      apply_inline_zero(zero, out, findings);
    }
  } else if (*kind == "MEGATRON_LM") {
    apply_megatron(megatron, out);
  } else {
    out.strategy = {"ddp", kind.key};
  }
  keys.no_effect(kNoEffect);
  keys.leftovers("accelerate");
}

void read_accelerate(const SourceFile& file, const Surroundings& around, Resolved& out, Findings& findings) {
  out.stack = "pytorch";
  apply_accelerate(file, around, out, findings);
  if (!out.dtype) out.dtype = {"float32", "default of accelerate"};
  if (!out.recompute) out.recompute = {"none", "default of accelerate"};
  findings.ask("model", "no model, batch or length in the file: a mesh only",
               "the training arguments too: --from trl FILE, --from hf-trainer FILE, or '-- --model_name_or_path NAME "
               "--per_device_train_batch_size N --max_length L'");
}

}  // namespace automodel::foreign
