// The storage units that Megatron-FSDP's options select.
#include "plan/storage_units.h"

#include <catch2/catch.hpp>

#include "estimate/estimated_plan.h"

namespace automodel::plan {
namespace {

arch::ModelSpec spec_of(const std::string& type, const std::string& architecture) {
  arch::ModelSpec out;
  out.model_type = type;
  out.architecture = architecture;
  return out;
}

estimate::EstimatedPlan plan_of(const std::string& distributed) {
  const auto loaded = config::read_recipe(
      "device: cuda\nhardware: {profile: h100}\n"
      "model: {config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 8, "
      "num_attention_heads: 8, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 128}}\n"
      "dataset: {_target_: mock, vocab_size: 256, seq_length: 64}\n"
      "step_scheduler: {global_batch_size: 32, local_batch_size: 8}\n"
      "distributed: {strategy: megatron_fsdp, dp_size: 4, " +
          distributed + "}\n",
      "recipe.yaml", {}, {});
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  auto made = estimate::make_plan(loaded, {});
  INFO(to_text(made.problems));
  REQUIRE(made.plan);
  return std::move(*made.plan);
}

/// Ids of the warnings about a key.
std::string warned(const TrainingPlan& plan, const std::string& key) {
  std::string out;
  for (const auto& each : plan.warnings)
    if (each.key == "distributed." + key) out += std::string(each.id);
  return out;
}

}  // namespace

TEST_CASE("decoder layers are recognized by class name", "[plan]") {
  const auto llama = spec_of("llama", "LlamaForCausalLM"), gpt2 = spec_of("gpt2", "GPT2LMHeadModel"),
             qwen = spec_of("qwen3_moe", "Qwen3MoeForCausalLM"), custom = spec_of("qwen2", "MyForCausalLM");
  CHECK(is_decoder_layer("LlamaDecoderLayer", llama));
  CHECK(is_decoder_layer("transformers.models.llama.modeling_llama.LlamaDecoderLayer", llama));
  CHECK(is_decoder_layer("TransformerLayer", llama));
  CHECK(is_decoder_layer("nemo_automodel.components.models.deepseek_v3.model.Block", llama));
  CHECK(is_decoder_layer("GPT2Block", gpt2));
  CHECK(is_decoder_layer("Qwen3MoeDecoderLayer", qwen));
  CHECK(is_decoder_layer("Qwen2DecoderLayer", custom));
  CHECK_FALSE(is_decoder_layer("LlamaDecoderLayer", gpt2));
  CHECK_FALSE(is_decoder_layer("LlamaDecoderLayer", qwen));
  CHECK_FALSE(is_decoder_layer("LlamaAttention", llama));
  CHECK_FALSE(is_decoder_layer("torch.nn.Embedding", llama));
  CHECK_FALSE(is_decoder_layer("", llama));
}

TEST_CASE("without the model's layer among the unit modules, a stage is one storage unit", "[plan]") {
  const auto plain = plan_of("zero_dp_strategy: 3");
  const auto named = plan_of("megatron_fsdp_unit_modules: [LlamaDecoderLayer, LlamaAttention]");
  CHECK_FALSE(named.sharding.whole_stage);
  CHECK(warned(named, "megatron_fsdp_unit_modules").empty());
  CHECK(named.estimate->memory.peak() == plain.estimate->memory.peak());
  const auto other = plan_of("megatron_fsdp_unit_modules: [GPT2Block]");
  CHECK(other.sharding.whole_stage);
  CHECK(warned(other, "megatron_fsdp_unit_modules") == "unit-modules");
  CHECK(other.estimate->memory.peak() > plain.estimate->memory.peak());
  CHECK(warned(plan_of("zero_dp_strategy: 2, megatron_fsdp_unit_modules: [GPT2Block]"), "megatron_fsdp_unit_modules") ==
        "no-effect");
}

TEST_CASE("double buffering holds one layer in use and one in flight", "[plan]") {
  const auto plain = plan_of("zero_dp_strategy: 3"), two = plan_of("fsdp_double_buffer: true");
  CHECK(plain.sharding.backward_prefetch == 2);
  CHECK(two.sharding.double_buffer);
  CHECK(two.sharding.backward_prefetch == 1);
  const auto weights = [](const estimate::EstimatedPlan& plan, estimate::Phase phase) {
    return plan.estimate->memory.ranks.front().phases[static_cast<std::size_t>(phase)].weights;
  };
  CHECK(weights(two, estimate::Phase::kSteady) < weights(plain, estimate::Phase::kSteady));
  CHECK(weights(two, estimate::Phase::kCheckpoint) > weights(plain, estimate::Phase::kCheckpoint));  // the buffers stay
  for (const char* idle : {"zero_dp_strategy: 2", "disable_bucketing: true", "pp_size: 2, pipeline: {}",
                           "megatron_fsdp_unit_modules: [GPT2Block]"}) {
    INFO(idle);
    const auto plan = plan_of(std::string("fsdp_double_buffer: true, ") + idle);
    CHECK_FALSE(plan.sharding.double_buffer);
    CHECK(warned(plan, "fsdp_double_buffer") == "no-effect");
  }
}

}  // namespace automodel::plan
