#include "plan/levers.h"

#include <fmt/format.h>

namespace automodel::plan {
namespace {

bool scope_covers_language(const config::DistributedConfig& distributed) {
  return std::visit(
      [](const auto& strategy) {
        if constexpr (requires { strategy.activation_checkpointing_scope(); })
          return strategy.activation_checkpointing_scope->covers_language();
        else
          return true;
      },
      distributed.strategy());
}

Recompute recompute_of(const config::DistributedConfig& distributed, Located& report) {
  const auto asked = distributed.checkpointing();
  if (asked == config::ActivationCheckpointing::kOff) return Recompute::kNone;
  if (!scope_covers_language(distributed)) {
    report.warn("no-effect", "distributed.activation_checkpointing_scope",
                "no activations are recomputed: the scope leaves out the language tower, the only one here",
                "use all or language");
    return Recompute::kNone;
  }
  return asked == config::ActivationCheckpointing::kFull ? Recompute::kFull : Recompute::kSelective;
}

std::optional<DType> autocast_of(const config::Recipe& recipe, DType compute) {
  const auto& m = recipe.model_parallel();
  std::optional<DType> out = std::visit(
      [](const auto& strategy) -> std::optional<DType> {
        if constexpr (requires { strategy.autocast_dtype(); })
          return strategy.autocast_dtype();
        else
          return std::nullopt;
      },
      recipe.distributed->strategy());
  if (m.enable_autocast()) out = m.autocast_dtype() ? m.autocast_dtype() : m.params_dtype();
  if (out == compute) out.reset();
  return out;
}

}  // namespace

Levers plan_levers(const config::LoadedRecipe& loaded, int pp, DType compute, Located& report) {
  const auto& recipe = loaded.recipe;
  const auto& m = recipe.model_parallel();
  Levers out;
  out.recompute = recompute_of(recipe.distributed(), report);
  out.kept_microbatches = m.num_microbatches_with_partial_activation_checkpoints();
  const std::string window = "model_parallel.num_microbatches_with_partial_activation_checkpoints";
  if (out.kept_microbatches && *out.kept_microbatches < 0)
    report.refuse("bad-value", window,
                  fmt::format("{} microbatches cannot keep their activations", *out.kept_microbatches), "0 or more");
  if (out.kept_microbatches && out.recompute == Recompute::kNone)
    report.warn("no-effect", window, "every microbatch keeps its activations: activation checkpointing is off",
                "set distributed.activation_checkpointing: full");
  if (m.defer_embedding_wgrad_compute() && pp > 1) out.deferred_head = m.wgrad_deferral_limit();
  out.delay_weight_gradients = m.delay_wgrad_compute();
  out.autocast = autocast_of(recipe, compute);
  out.loss_scaler = compute == DType::kFloat16;
  if (const auto* megatron = std::get_if<config::MegatronFSDPConfig>(&recipe.distributed->strategy()))
    out.check_gradients = megatron->check_for_nan_in_grad();
  if (m.hybrid_context_parallel())
    report.refuse("unsupported-option", "model_parallel.hybrid_context_parallel",
                  "a context-parallel size chosen for each sequence is not supported",
                  "remove it; distributed.cp_size holds for all sequences");
  if (m.cpu_offloading() && pp > 1)
    report.refuse("bad-value", "model_parallel.cpu_offloading",
                  "offloading of activations does not work with pipeline parallelism (Megatron Core's rule)",
                  "set distributed.activation_checkpointing: full");
  else if (m.cpu_offloading())
    report.refuse("unsupported-option", "model_parallel.cpu_offloading",
                  "activations cannot be kept in host memory between forward and backward",
                  "set distributed.activation_checkpointing: full, which keeps the input of each layer alone");
  return out;
}

}  // namespace automodel::plan
