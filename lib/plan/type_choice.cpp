#include "plan/type_choice.h"

#include <optional>
#include <tuple>
#include <variant>

#include <fmt/format.h>

#include "config/optimizer_basics.h"

namespace automodel::plan {
namespace {

/// Keys that name the weights' dtype, or the compute dtype, must agree.
void check_types(const config::LoadedRecipe& loaded, Located& report) {
  const auto& m = loaded.recipe.model_parallel();
  const auto disagree = [&](const std::string& key, DType mine, const std::string& other, DType others) {
    if (mine != others)
      report.refuse("precision-conflict", key)
          .says("{} is {}, but {} is {}", key, name_of(mine), other, name_of(others))
          .hint("remove one of the two; docs/precision.md says which key decides what");
  };
  const auto configured = loaded.recipe.model() ? loaded.recipe.model()->torch_dtype->dtype : std::nullopt;
  if (m.params_dtype() && configured)
    disagree("model_parallel.params_dtype", *m.params_dtype(), "model.torch_dtype", *configured);
  const auto* fsdp = std::get_if<config::FSDP2Config>(&loaded.recipe.distributed->strategy());
  const bool policy = report.given("distributed.mp_policy") && fsdp != nullptr && fsdp->mp_policy();
  for (const auto& [key, given, type] : {std::tuple("model_parallel.bf16", m.bf16(), DType::kBFloat16),
                                         std::tuple("model_parallel.fp16", m.fp16(), DType::kFloat16)})
    if (given && policy && fsdp->mp_policy()->param_dtype())
      disagree(key, type, "distributed.mp_policy.param_dtype", *fsdp->mp_policy()->param_dtype());
}

/// Applies the dtypes of the optimizer section, and those of Megatron-FSDP's section for gradients.
void add_optimizer_types(TypePlan& types, const config::Recipe& recipe, Located& report) {
  const auto asked = config::types_of(recipe.optimizer());
  const auto* megatron = std::get_if<config::MegatronFSDPConfig>(&recipe.distributed->strategy());
  if (asked.master) {
    types.master = *asked.master;
    if (types.master == DType::kBFloat16)
      report.warn("low-precision-masters", "optimizer.main_params_dtype")
          .says("the optimizer updates bfloat16 weights: updates below a weight's precision are lost")
          .hint("remove the key: master weights are then float32");
  }
  types.first_moment = asked.first_moment.value_or(types.master);
  types.second_moment = asked.second_moment.value_or(types.master);
  // Only if set explicitly: by default gradients are accumulated in float32.
  const bool low = megatron != nullptr && report.given("distributed.grad_reduce_in_fp32") &&
                   !megatron->grad_reduce_in_fp32() && types.compute == DType::kBFloat16;
  if (low) types.gradient = types.compute;
  if (!asked.gradient) return;
  if (low && *asked.gradient != types.compute)
    report.refuse("precision-conflict", "optimizer.main_grads_dtype")
        .says("optimizer.main_grads_dtype is {}, but distributed.grad_reduce_in_fp32: false means {}",
              name_of(*asked.gradient), name_of(types.compute))
        .hint("remove one of the two; docs/precision.md says which key decides what");
  types.gradient = *asked.gradient;
}

}  // namespace

TypePlan choose_types(const config::LoadedRecipe& loaded, const arch::ModelSpec* spec, bool cuda, Located& report) {
  const auto& recipe = loaded.recipe;
  const auto& m = recipe.model_parallel();
  check_types(loaded, report);
  TypePlan types;
  auto asked = recipe.model() ? recipe.model()->torch_dtype->dtype : std::nullopt;
  if (m.params_dtype()) asked = m.params_dtype();
  const DType weights = asked                            ? *asked
                        : spec != nullptr && spec->dtype ? *spec->dtype
                        : cuda                           ? DType::kBFloat16
                                                         : DType::kFloat32;
  types.stored = weights;
  types.compute = m.bf16() ? DType::kBFloat16 : m.fp16() ? DType::kFloat16 : weights;
  types.master = weights == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  types.gradient = types.master;
  types.reduce = types.gradient;
  bool says_reduction = false;  // otherwise gradients are communicated in the dtype they are accumulated in
  std::optional<DType> output;
  const auto& strategy = recipe.distributed->strategy();
  if (const auto* fsdp = std::get_if<config::FSDP2Config>(&strategy); fsdp != nullptr) {
    // Without a policy, CUDA uses NeMo AutoModel's default. On a CPU, low precision is both slower and less accurate,
    // so it is used only if the recipe requests it.
    const bool given = report.given("distributed.mp_policy");
    const auto policy = fsdp->mp_policy().value_or(config::MixedPrecisionPolicy::standard());
    if (given || (cuda && !asked && !m.fp16())) {
      if (policy.param_dtype()) types.compute = *policy.param_dtype();
      types.reduce = policy.reduce_dtype().value_or(types.compute);
      says_reduction = given;
      if (given && policy.output_dtype()) output = policy.output_dtype();
      types.cast_inputs = policy.cast_forward_inputs();
    }
  }
  if (const auto* megatron = std::get_if<config::MegatronFSDPConfig>(&strategy);
      megatron != nullptr && types.compute != types.master) {
    if (!megatron->preserve_fp32_weights()) {
      types.master = types.compute;
      report.warn("low-precision-masters", "distributed.preserve_fp32_weights")
          .says("the optimizer updates {} weights: updates below a weight's precision are lost", name_of(types.master))
          .hint("remove the key: master weights are then float32");
    }
    types.reduce = megatron->grad_reduce_in_fp32() ? DType::kFloat32 : types.compute;
  }
  says_reduction = says_reduction || types.reduce != types.gradient || report.given("distributed.grad_reduce_in_fp32");
  add_optimizer_types(types, recipe, report);
  if (!says_reduction) types.reduce = types.gradient;
  types.message = output.value_or(types.compute);
  if (output != types.compute) types.output = output;
  if (m.pipeline_dtype()) types.message = *m.pipeline_dtype();
  if (recipe.distributed->pipeline() && recipe.distributed->pipeline()->dtype())
    types.message = *recipe.distributed->pipeline()->dtype();
  return types;
}

}  // namespace automodel::plan
