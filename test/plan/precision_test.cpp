// docs/precision.md row by row: which key decides which type, on which device.
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "plan/training_plan.h"

namespace automodel::plan {
namespace {

struct Row {
  const char* device = "cpu";
  const char* config = "";          ///< further keys of config.json
  const char* model = "";           ///< of `model`
  const char* distributed = "";     ///< of `distributed`
  const char* model_parallel = "";  ///< of `model_parallel`
  const char* types;                ///< compute, master, gradient, reduce, message, logits, autocast
  const char* warning = "";
};

PlanResult plan_of(const Row& row) {
  const std::string comma = *row.model != '\0' ? ", " : "";
  const auto text = fmt::format(
      "device: {}\nmodel: {{{}{}config: {{{}model_type: llama, hidden_size: 16, intermediate_size: 32, "
      "num_hidden_layers: 4, num_attention_heads: 2, vocab_size: 64, max_position_embeddings: 64}}}}\n"
      "dataset: {{_target_: mock, vocab_size: 64, seq_length: 16}}\nhardware: {{profile: {}}}\n"
      "step_scheduler: {{global_batch_size: 8, local_batch_size: 8}}\ndistributed: {{{}}}\nmodel_parallel: {{{}}}\n",
      row.device, row.model, comma, row.config, std::string(row.device) == "cuda" ? "h100" : "cpu", row.distributed,
      row.model_parallel);
  const auto loaded = config::read_recipe(text, "recipe.yaml", {}, {});
  INFO(text << to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  return make_plan(loaded, {.cuda_available = std::string(row.device) == "cuda"});
}

std::string short_name(DType type) {
  if (type == DType::kBFloat16) return "b16";
  if (type == DType::kFloat16) return "f16";
  if (type == DType::kFloat64) return "f64";
  return type == DType::kFloat32 ? "f32" : std::string(name_of(type));
}

std::string types_of(const TrainingPlan& plan) {
  const auto& t = plan.types;
  return fmt::format("{} {} {} {} {} {} {}", short_name(t.compute), short_name(t.master), short_name(t.gradient),
                     short_name(t.reduce), short_name(t.message), short_name(t.output.value_or(t.compute)),
                     plan.levers.autocast ? short_name(*plan.levers.autocast) : "-");
}

const Row kRows[] = {
    // The type of the weights.
    {.types = "f32 f32 f32 f32 f32 f32 -"},
    {.device = "cuda", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.device = "cuda", .distributed = "strategy: ddp", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.config = "torch_dtype: bfloat16, ", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.config = "torch_dtype: bfloat16, ", .model = "torch_dtype: float32", .types = "f32 f32 f32 f32 f32 f32 -"},
    {.model = "torch_dtype: float64", .types = "f64 f64 f64 f64 f64 f64 -"},
    {.config = "torch_dtype: bfloat16, ",
     .model_parallel = "params_dtype: float32",
     .types = "f32 f32 f32 f32 f32 f32 -"},
    {.device = "cuda", .model_parallel = "params_dtype: float32", .types = "f32 f32 f32 f32 f32 f32 -"},
    {.device = "cuda", .model_parallel = "params_dtype: float16", .types = "f16 f32 f32 f32 f16 f16 -"},
    // What is computed with.
    {.model_parallel = "bf16: true", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.model_parallel = "fp16: true", .types = "f16 f32 f32 f32 f16 f16 -"},
    {.device = "cuda", .model_parallel = "fp16: true", .types = "f16 f32 f32 f32 f16 f16 -"},
    {.distributed = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}", .types = "b16 f32 f32 f32 b16 b16 -"},
    {.distributed = "mp_policy: {param_dtype: bfloat16}", .types = "b16 f32 f32 b16 b16 b16 -"},
    {.distributed = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32, output_dtype: float32}",
     .types = "b16 f32 f32 f32 f32 f32 -"},
    // Messages.
    {.model_parallel = "pipeline_dtype: bfloat16", .types = "f32 f32 f32 f32 b16 f32 -"},
    // Autocast.
    {.distributed = "autocast_dtype: bfloat16", .types = "f32 f32 f32 f32 f32 f32 b16"},
    {.distributed = "autocast_dtype: bfloat16",
     .model_parallel = "enable_autocast: true",
     .types = "f32 f32 f32 f32 f32 f32 b16"},
    {.model_parallel = "enable_autocast: true, autocast_dtype: bfloat16", .types = "f32 f32 f32 f32 f32 f32 b16"},
    {.model_parallel = "enable_autocast: true, pipeline_dtype: bfloat16", .types = "f32 f32 f32 f32 b16 f32 b16"},
    {.model_parallel = "enable_autocast: true", .types = "f32 f32 f32 f32 f32 f32 -", .warning = "no-effect"},
    {.model_parallel = "autocast_dtype: bfloat16", .types = "f32 f32 f32 f32 f32 f32 -", .warning = "no-effect"},
    // Masters are float32 under every strategy.
    {.distributed = "strategy: megatron_fsdp", .model_parallel = "bf16: true", .types = "b16 f32 f32 b16 b16 b16 -"},
    {.distributed = "strategy: megatron_fsdp, grad_reduce_in_fp32: true",
     .model_parallel = "bf16: true",
     .types = "b16 f32 f32 f32 b16 b16 -"},
    {.distributed = "strategy: megatron_fsdp, preserve_fp32_weights: true",
     .model_parallel = "bf16: true",
     .types = "b16 f32 f32 b16 b16 b16 -"},
    {.distributed = "strategy: megatron_fsdp, preserve_fp32_weights: false",
     .model_parallel = "bf16: true",
     .types = "b16 b16 f32 b16 b16 b16 -",
     .warning = "low-precision-masters"},
    {.distributed = "strategy: ddp", .model_parallel = "bf16: true", .types = "b16 f32 f32 f32 b16 b16 -"},
};

}  // namespace

TEST_CASE("every key of docs/precision.md decides what it says", "[plan]") {
  for (const auto& row : kRows) {
    const auto result = plan_of(row);
    CAPTURE(row.device, row.config, row.model, row.distributed, row.model_parallel);
    INFO(to_text(result.problems));
    REQUIRE(result.plan);
    CHECK(types_of(*result.plan) == row.types);
    std::string warnings;
    for (const auto& warning : result.plan->warnings) warnings += warning.id;
    CHECK(warnings == row.warning);
  }
}

TEST_CASE("asynchronous tensor parallelism switches sequence parallelism on, and says so", "[plan]") {
  const auto result =
      plan_of({.distributed = "tp_size: 2, dp_size: 1, enable_async_tensor_parallel: true", .types = ""});
  INFO(to_text(result.problems));
  REQUIRE(result.plan);
  CHECK(result.plan->tensor.sequence_parallel);
  REQUIRE(result.plan->warnings.size() == 1);
  CHECK(result.plan->warnings[0].id == "sequence-parallel");
}

}  // namespace automodel::plan
