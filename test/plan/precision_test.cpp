// docs/precision.md row by row: which key decides which type, on which device.
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "estimate/estimated_plan.h"
#include "plan/precision_rows.h"

namespace automodel::plan {
namespace {

using Row = test::PrecisionRow;

estimate::PlanResult plan_of(const Row& row) {
  const auto text = test::recipe_of(row);
  const auto loaded = config::read_recipe(text, "recipe.yaml", {}, {});
  INFO(text << to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  return estimate::make_plan(loaded, {.cuda_available = std::string(row.device) == "cuda"});
}

std::string short_name(DType type) {
  if (type == DType::kBFloat16) return "b16";
  if (type == DType::kFloat16) return "f16";
  if (type == DType::kFloat64) return "f64";
  return type == DType::kFloat32 ? "f32" : std::string(name_of(type));
}

std::string types_of(const estimate::EstimatedPlan& plan) {
  const auto& t = plan.types;
  return fmt::format("{} {} {} {} {} {} {}", short_name(t.compute), short_name(t.master), short_name(t.gradient),
                     short_name(t.reduce), short_name(t.message), short_name(t.output.value_or(t.compute)),
                     plan.execution.precision.autocast ? short_name(*plan.execution.precision.autocast) : "-");
}

}  // namespace

TEST_CASE("every row of docs/precision.md gives the documented types", "[plan]") {
  for (const auto& row : test::kPrecisionRows) {
    const auto result = plan_of(row);
    CAPTURE(row.device, row.config, row.model, row.distributed, row.model_parallel, row.optimizer);
    INFO(to_text(result.problems));
    REQUIRE(result.plan);
    CHECK(types_of(*result.plan) == row.types);
    const auto& t = result.plan->types;
    const auto moments = short_name(t.first_moment) + " " + short_name(t.second_moment);
    CHECK(moments == (*row.moments != '\0' ? row.moments : short_name(t.master) + " " + short_name(t.master)));
    std::string warnings;
    for (const auto& warning : result.plan->warnings) warnings += std::string(warning.id);
    CHECK(warnings == row.warning);
  }
}

TEST_CASE("distributed.pipeline.dtype is the type of messages between stages", "[plan]") {
  const auto messages = [](const std::string& pipeline, const std::string& more) {
    const auto loaded = config::read_recipe(
        "device: cpu\nmodel:\n  config: {model_type: llama, hidden_size: 64, intermediate_size: 160, "
        "num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 1000, "
        "max_position_embeddings: 128}\ndistributed: {strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1f1b" +
            pipeline +
            "}}\ndataset: {_target_: mock, seq_length: 32}\n"
            "step_scheduler: {global_batch_size: 16, local_batch_size: 8}\n" +
            more,
        "recipe.yaml", {}, {});
    INFO(to_text(loaded.problems));
    const auto result = estimate::make_plan(loaded, {});
    INFO(to_text(result.problems));
    REQUIRE(result.plan);
    return short_name(result.plan->types.message);
  };
  CHECK(messages("", "") == "f32");
  CHECK(messages(", dtype: bfloat16", "") == "b16");
  CHECK(messages("", "model_parallel: {pipeline_dtype: bfloat16}\n") == "b16");
  CHECK(messages(", dtype: float32", "model_parallel: {pipeline_dtype: bfloat16}\n") == "f32");
}

TEST_CASE("the gradient types of Megatron-FSDP and of the optimizer must agree", "[plan]") {
  const auto result = plan_of({.distributed = "strategy: megatron_fsdp, grad_reduce_in_fp32: false",
                               .model_parallel = "bf16: true",
                               .optimizer = "main_grads_dtype: float32",
                               .types = ""});
  REQUIRE(result.problems.size() == 1);
  CHECK(result.problems[0].id == "precision-conflict");
  CHECK(result.problems[0].key == "optimizer.main_grads_dtype");
}

TEST_CASE("a moment type other than float32 and bfloat16 is refused", "[plan]") {
  const auto loaded =
      config::read_recipe("model: {config: {}}\noptimizer: {exp_avg_dtype: float16}\n", "r.yaml", {}, {});
  REQUIRE_FALSE(loaded.problems.empty());
  CHECK(loaded.problems[0].id == "bad-value");
  CHECK(loaded.problems[0].key == "optimizer.exp_avg_dtype");
}

TEST_CASE("a plan for the CPU never uses the rates of a GPU profile", "[plan]") {
  const auto loaded = config::read_recipe(
      "device: cpu\nmodel: {config: {model_type: llama, hidden_size: 64, "
      "num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 128, "
      "vocab_size: 64}}\nhardware: {profile: h100}\n",
      "r.yaml", {}, {});
  const auto result = estimate::make_plan(loaded, {.world_size = 1});
  REQUIRE(result.plan);
  REQUIRE_FALSE(result.plan->warnings.empty());
  CHECK(result.plan->warnings[0].id == "device-conflict");
  CHECK(result.plan->warnings[0].where.line == 3);
  REQUIRE(result.plan->estimate);
  CHECK(result.plan->estimate->hardware.name == "cpu");
}

TEST_CASE("rng.deterministic asks for reproducible kernels as model_parallel.deterministic_mode does", "[plan]") {
  for (const std::string section : {"rng: {deterministic: true}\n", "model_parallel: {deterministic_mode: true}\n"}) {
    const auto planned = [&](const std::string& device) {
      const auto loaded = config::read_recipe(
          "model: {config: {model_type: llama, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, "
          "num_attention_heads: 1, vocab_size: 64}}\ndataset: {_target_: mock, vocab_size: 64, seq_length: 16}\n" +
              section + device,
          "r.yaml", {}, {});
      REQUIRE(loaded.problems.empty());
      auto result = estimate::make_plan(loaded, {.world_size = 1});
      REQUIRE(result.plan);
      return std::move(*result.plan);
    };
    const auto gpu = planned("device: cuda\n");
    CHECK(gpu.execution.precision.deterministic);
    const auto cpu = planned("device: cpu\n");
    REQUIRE(cpu.warnings.size() == 1);
    CHECK(cpu.warnings[0].key == section.substr(0, section.find(':')) +
                                     (section.starts_with("rng") ? ".deterministic" : ".deterministic_mode"));
  }
}

TEST_CASE("bfloat16 on a CPU gives a warning without its instructions and an estimated speedup with them", "[plan]") {
  const std::string text =
      "device: cpu\nmodel:\n  config: {torch_dtype: bfloat16, model_type: llama, hidden_size: 1024, "
      "num_hidden_layers: 2, num_attention_heads: 8, intermediate_size: 4096, vocab_size: 64}\n"
      "dataset: {_target_: mock, vocab_size: 64, seq_length: 512}\n"
      "step_scheduler: {global_batch_size: 8, local_batch_size: 8}\n";
  const auto planned = [&](std::optional<BFloat16Unit> unit, const std::string& more) {
    const auto loaded = config::read_recipe(text + more, "r.yaml", {}, {});
    INFO(to_text(loaded.problems));
    REQUIRE(loaded.problems.empty());
    auto result = estimate::make_plan(loaded, {.world_size = 1, .bfloat16 = unit});
    INFO(to_text(result.problems));
    REQUIRE((result.plan && result.plan->estimate));
    return std::move(*result.plan);
  };
  const auto none = planned(BFloat16Unit::kNone, "");
  CHECK(none.types.compute == DType::kBFloat16);
  CHECK(none.types.master == DType::kFloat32);
  REQUIRE(none.warnings.size() == 1);
  CHECK(none.warnings[0].id == "slow-bfloat16");
  CHECK(none.warnings[0].key == "model.torch_dtype");
  CHECK(none.warnings[0].where.line == 2);
  CHECK(none.estimate->float32_ratio == 0);
  const auto policy =
      planned(BFloat16Unit::kNone, "distributed: {strategy: fsdp2, mp_policy: {param_dtype: bfloat16}}\n");
  REQUIRE(policy.warnings.size() == 1);
  CHECK(policy.warnings[0].where.line == 6);

  // The types are the same everywhere, so that different machines make the same plan; only estimates differ.
  // Whether bfloat16 is faster with AVX512-BF16 depends on the processor.
  double before = 0;
  for (const auto unit : {BFloat16Unit::kAvx512, BFloat16Unit::kAmx}) {
    const auto plan = planned(unit, "");
    CHECK(fingerprint(plan) == fingerprint(none));
    CHECK(plan.warnings.empty());
    CHECK(plan.estimate->float32_ratio > 1.2 * before);
    before = plan.estimate->float32_ratio;
    CHECK(estimate::to_text(*plan.estimate, plan).find("times as long") != std::string::npos);
  }
  CHECK(before > 1.2);
  CHECK(planned(BFloat16Unit::kAmx, "").estimate->time.step < none.estimate->time.step);
  const auto wide = planned(BFloat16Unit::kNone, "model_parallel: {params_dtype: float32}\n");
  CHECK(wide.warnings.empty());
  const auto measured = planned(BFloat16Unit::kAmx, "").estimate->float32_ratio;
  const auto by_hand = planned(std::nullopt, "model_parallel: {params_dtype: float32}\n").estimate->time.step /
                       planned(BFloat16Unit::kAmx, "").estimate->time.step;
  CHECK(measured == Approx(by_hand).epsilon(0.02));  // optimizer, overheads: the same in both
}

TEST_CASE("asynchronous tensor parallelism enables sequence parallelism with a warning", "[plan]") {
  const auto result =
      plan_of({.distributed = "tp_size: 2, dp_size: 1, enable_async_tensor_parallel: true", .types = ""});
  INFO(to_text(result.problems));
  REQUIRE(result.plan);
  CHECK(result.plan->tensor.sequence_parallel);
  REQUIRE(result.plan->warnings.size() == 1);
  CHECK(result.plan->warnings[0].id == "sequence-parallel");
}

}  // namespace automodel::plan
