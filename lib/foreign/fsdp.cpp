// FSDP as accelerate, axolotl and transformers spell it.
#include <algorithm>

#include <fmt/format.h>

#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

constexpr KeyReason kNoEffect[] = {
    {"fsdp_*", "how FSDP wraps, loads and saves"},
    {"limit_all_gathers", "how FSDP gathers"},
    {"sync_module_states", "how FSDP loads"},
    {"use_orig_params", "how FSDP wraps"},
    {"cpu_ram_efficient_loading", "how FSDP loads"},
    {"auto_wrap_policy", "units are decoder layers"},
    {"transformer_layer_cls_to_wrap", "units are decoder layers"},
    {"state_dict_type", "how FSDP saves"},
    {"final_state_dict_type", "how FSDP saves"},
    {"backward_prefetch", "one unit is gathered ahead"},
    {"backward_prefetch_policy", "one unit is gathered ahead"},
    {"forward_prefetch", "one unit is gathered ahead"},
    {"xla*", "for TPUs"},
    {"min_num_params", "units are decoder layers"},
};

}  // namespace

int apply_fsdp(Keys& config, const std::vector<std::string>& words, int version, Resolved& out) {
  const auto has = [&](std::string_view word) { return std::ranges::find(words, word) != words.end(); };
  if (const auto given = config.integer({"fsdp_version", "version"})) version = static_cast<int>(*given);
  const std::string name = fmt::format("FSDP{}", version);
  out.strategy = {"fsdp2", name};
  out.zero_stage = 3;
  auto sharding = config.text({"fsdp_sharding_strategy", "sharding_strategy"});
  // Under version 1 reshard_after_forward is a name, under 2 a boolean.
  if (config.given("fsdp_reshard_after_forward") || config.given("reshard_after_forward")) {
    const auto reshard = config.text({"fsdp_reshard_after_forward", "reshard_after_forward"});
    std::string lower = *reshard;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower == "false")
      out.reshard_after_forward = {false, reshard.key};
    else if (lower != "true" && !sharding)
      sharding = reshard;
  }
  std::string kind = sharding               ? *sharding
                     : has("shard_grad_op") ? "SHARD_GRAD_OP"
                     : has("no_shard")      ? "NO_SHARD"
                     : has("hybrid_shard")  ? "HYBRID_SHARD"
                                            : "FULL_SHARD";
  const std::string numbers[] = {"", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"};
  if (kind.size() == 1 && kind[0] >= '1' && kind[0] <= '4') kind = numbers[kind[0] - '0'];
  std::ranges::transform(kind, kind.begin(), [](unsigned char c) { return std::toupper(c); });
  if (kind == "SHARD_GRAD_OP") {
    out.reshard_after_forward = {false, sharding ? sharding.key : "fsdp"};
  } else if (kind == "NO_SHARD") {
    out.strategy = {"ddp", sharding ? sharding.key : "fsdp"};
    out.zero_stage = 0;
  } else if (kind.starts_with("HYBRID_SHARD") && !out.dp_replicate) {
    out.copy_per_machine = sharding ? sharding.key : "fsdp";
  }
  const bool offload = config.flag({"fsdp_offload_params", "offload_params"}).value_or(false) || has("offload");
  out.offload = {offload ? "params+grads+optimizer" : "none", "offload_params"};
  if (config.flag({"fsdp_activation_checkpointing", "activation_checkpointing"}).value_or(false))
    out.recompute = {"full", config.path("activation_checkpointing")};
  config.no_effect(kNoEffect);
  config.leftovers("FSDP");
  return version;
}

void apply_accelerator_config(Keys& keys, Resolved& out) {
  auto kwargs = keys.section("accelerator_config").section("gradient_accumulation_kwargs");
  const auto each = kwargs.flag({"sync_each_batch"});
  out.defer_gradient_sync = {!each.value_or(false), each ? each.key : "accelerate's no_sync between passes"};
}

}  // namespace automodel::foreign
