#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "golden_file.h"
#include "plan/plan_json.h"
#include "plan/plan_text.h"
#include "plan/training_plan.h"

namespace automodel::plan {
namespace {

TrainingPlan planned(const std::string& text, std::optional<int> world = {}) {
  const auto loaded = config::read_recipe(text, "recipe.yaml", {}, {});
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  auto result = make_plan(loaded, {.world_size = world});
  INFO(to_text(result.problems));
  REQUIRE(result.plan);
  REQUIRE(result.plan->estimate);
  return std::move(*result.plan);
}

std::string tiny(const std::string& distributed, const std::string& rest = "") {
  return "device: cpu\nmodel:\n  config: {model_type: llama, hidden_size: 64, intermediate_size: 160, "
         "num_hidden_layers: 8,\n"
         "    num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 1000, max_position_embeddings: 128}\n"
         "distributed: {" +
         distributed +
         "}\ndataset: {_target_: mock, seq_length: 32}\n"
         "step_scheduler: {global_batch_size: 16, local_batch_size: 8}\n" +
         rest;
}

/// A Megatron case as a recipe, where it can be one: dense, Llama-like, distributed optimizer.
std::optional<std::string> recipe_of(const nlohmann::json& input) {
  const auto& a = input["args"];
  const bool plain = a["num_experts"].is_null() && !a["add_bias_linear"].get<bool>() &&
                     !a["multi_latent_attention"].get<bool>() && a["use_distributed_optimizer"].get<bool>();
  if (!plain) return std::nullopt;
  const int pp = a["pipeline_model_parallel_size"], tp = a["tensor_model_parallel_size"];
  const int dp = a["data_parallel_size"], layers = a["num_layers"];
  const int chunks =
      a["virtual_pipeline_model_parallel_size"].is_null() ? 1 : a["virtual_pipeline_model_parallel_size"].get<int>();
  const int microbatches = 4 * pp;
  return fmt::format(
      "model:\n  torch_dtype: bfloat16\n"
      "  config: {{model_type: llama, hidden_size: {}, intermediate_size: {}, num_hidden_layers: {}, head_dim: {},\n"
      "    num_attention_heads: {}, num_key_value_heads: {}, vocab_size: {}, max_position_embeddings: 131072,\n"
      "    tie_word_embeddings: {}}}\n"
      "distributed:\n  strategy: megatron_fsdp\n  zero_dp_strategy: 1\n  preserve_fp32_weights: true\n"
      "  pp_size: {}\n  tp_size: {}\n  dp_size: {}\n"
      "  pipeline: {{pp_schedule: {}, layers_per_stage: {}}}\n"
      "dataset: {{_target_: mock, seq_length: {}}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}}}\n",
      a["hidden_size"].get<int>(), a["ffn_hidden_size"].get<int>(), layers, a["kv_channels"].get<int>(),
      a["num_attention_heads"].get<int>(), a["num_query_groups"].get<int>(), a["padded_vocab_size"].get<int>(),
      !a["untie_embeddings_and_output_weights"].get<bool>(), pp, tp, dp, chunks > 1 ? "Interleaved1F1B" : "1F1B",
      layers / pp / chunks, a["seq_length"].get<int>(), microbatches * dp, microbatches);
}

}  // namespace

TEST_CASE("weights, gradients and optimizer are Megatron Core's where the assumptions are", "[plan][golden]") {
  int compared = 0;
  for (const auto& row : golden::load("plan/megatron_memory.json")) {
    const auto text = recipe_of(row["input"]);
    if (!text) continue;
    CAPTURE(row["input"].dump());
    const auto plan = planned(*text);
    // The stage with the embedding is their most loaded one. Its moments and masters are sharded, gradients are whole.
    const auto& first = plan.estimate->memory.ranks[0].in(Phase::kInitialization);
    const double ours = first.weights + first.gradients + first.optimizer;
    const double theirs = row["output"]["weight_and_optimizer_bytes"];
    CHECK(ours == Approx(theirs).epsilon(2e-5));
    ++compared;
  }
  CHECK(compared == 7);
}

TEST_CASE("model FLOPs are Megatron Core's", "[plan][golden]") {
  for (const auto& row : golden::load("plan/megatron_memory.json")) {
    const auto text = recipe_of(row["input"]);
    if (!text) continue;
    CAPTURE(row["input"].dump());
    const auto plan = planned(*text);
    const double token = plan.estimate->time.flops / static_cast<double>(plan.batch.tokens());
    CHECK(token == Approx(row["output"]["flops_per_token"].get<double>()).epsilon(1e-12));
  }
}

TEST_CASE("each kind of sharding divides what it shards", "[plan]") {
  const auto bytes = [](const std::string& strategy) {
    return planned(tiny(strategy + ", dp_size: 2")).estimate->memory.ranks[0];
  };
  const auto ddp = bytes("strategy: ddp"), one = bytes("strategy: megatron_fsdp, zero_dp_strategy: 1"),
             two = bytes("strategy: megatron_fsdp, zero_dp_strategy: 2"), three = bytes("strategy: megatron_fsdp");
  const double whole = 4.0 * static_cast<double>(ddp.parameters);
  CHECK(ddp.in(Phase::kInitialization).weights == Approx(whole));  // fp32: the optimizer changes what is computed with
  CHECK(ddp.in(Phase::kInitialization).gradients == Approx(whole));
  CHECK(ddp.in(Phase::kInitialization).optimizer == Approx(2 * whole));
  CHECK(one.in(Phase::kInitialization).optimizer == Approx(whole));
  CHECK(one.in(Phase::kInitialization).weights == Approx(1.5 * whole));
  CHECK(two.in(Phase::kInitialization).gradients == 0);
  CHECK(three.in(Phase::kInitialization).weights == Approx(0.5 * whole));
  CHECK(three.in(Phase::kSteady).weights < two.in(Phase::kSteady).weights);
}

TEST_CASE("activations follow the microbatches in flight", "[plan]") {
  const std::string pipeline = "strategy: ddp, pp_size: 4, pipeline: {pp_schedule: ";
  const auto one = planned(tiny(pipeline + "1F1B}")), gpipe = planned(tiny(pipeline + "GPipe}"));
  const auto activations = [](const TrainingPlan& plan, int rank) {
    return plan.estimate->memory.ranks[static_cast<std::size_t>(rank)].in(Phase::kSteady).activations;
  };
  // 1F1B: 4, 3, 2, 1 in flight; GPipe: all 8 everywhere. The working memory of one backward pass comes on top.
  const double layer = activations(one, 0) - activations(one, 1);
  CHECK(activations(one, 1) - activations(one, 2) == Approx(layer));
  CHECK(activations(gpipe, 0) - activations(one, 0) == Approx(4 * layer));
}

TEST_CASE("recomputation keeps the residual stream only", "[plan]") {
  const auto whole = planned(tiny("strategy: ddp")),
             again = planned(tiny("strategy: ddp, activation_checkpointing: full")),
             some = planned(tiny("strategy: ddp, activation_checkpointing: selective"));
  const auto of = [](const TrainingPlan& plan) {
    return plan.estimate->memory.ranks[0].in(Phase::kSteady).activations;
  };
  CHECK(of(again) < of(some));
  CHECK(of(some) < of(whole));
  CHECK(again.estimate->time.step > whole.estimate->time.step);
  CHECK(again.estimate->time.flops == Approx(whole.estimate->time.flops));
}

TEST_CASE("nvFSDP's names of sharding become Megatron-FSDP's levels, and the plan says so", "[plan]") {
  const auto level = [](const std::string& name) {
    return planned(tiny("strategy: nvfsdp, dp_size: 2, data_parallel_sharding_strategy: " + name));
  };
  const std::vector<std::string> names = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
  for (int i = 0; i < 4; ++i) {
    const auto plan = level(names[static_cast<std::size_t>(i)]);
    const auto same = planned(tiny(fmt::format("strategy: megatron_fsdp, dp_size: 2, zero_dp_strategy: {}", i)));
    CHECK(plan.zero_level == i);
    CHECK(fingerprint(plan) == fingerprint(same));
    CHECK(to_text(plan, ActionFormat::kNone)
              .find(fmt::format("(zero_dp_strategy {}, {})", i, names[static_cast<std::size_t>(i)])) !=
          std::string::npos);
    CHECK(to_json(plan, ActionFormat::kNone).find(fmt::format("\"zero_dp_strategy\":{}", i)) != std::string::npos);
    CHECK(plan.warnings.empty());
  }
  for (const char* name : {"params", "grads_params"}) {
    const auto plan = level(name);
    CHECK(plan.zero_level == 3);
    REQUIRE(plan.warnings.size() == 1);
    CHECK(plan.warnings[0].id == "sharding-level");
    CHECK(plan.warnings[0].key == "distributed.zero_dp_strategy");
  }
  CHECK_FALSE(planned(tiny("strategy: fsdp2")).zero_level);
}

TEST_CASE("offloaded layers are in host memory, and the device holds two at most", "[plan]") {
  const auto on_gpu = [](const std::string& megatron) {
    auto text = tiny("strategy: ddp", "hardware: {profile: h100}\nmodel_parallel: {" + megatron + "}\n");
    text.replace(0, std::string("device: cpu").size(), "device: cuda");
    return planned(text).estimate->memory.ranks[0].in(Phase::kFirstStep);  // later there are copies for checkpoints too
  };
  const auto whole = on_gpu(""), some = on_gpu("cpu_offloading: true, cpu_offloading_num_layers: 3"),
             most = on_gpu("cpu_offloading: true, cpu_offloading_num_layers: 7");
  CHECK(some.activations < whole.activations);
  CHECK(most.activations < some.activations);
  CHECK(some.host == Approx(whole.activations - some.activations));
  CHECK(most.host == Approx(some.host * 7 / 3));
  CHECK(most.activations > whole.activations - most.host);  // two of them are back while they are needed
  const auto cpu =
      planned(tiny("strategy: ddp", "model_parallel: {cpu_offloading: true, cpu_offloading_num_layers: 3}\n"));
  CHECK(cpu.estimate->memory.ranks[0].in(Phase::kSteady).host == 0);
  REQUIRE(cpu.warnings.size() == 1);
  CHECK(cpu.warnings[0].id == "no-effect");
}

TEST_CASE("copies that checkpoints are written from stay after the first save", "[plan]") {
  const auto steady = [](const std::string& more, std::string_view device) {
    auto text = tiny("strategy: ddp", more);
    text.replace(0, std::string("device: cpu").size(), device);
    return planned(text).estimate->memory.ranks[0].in(Phase::kSteady);
  };
  const std::string none = "checkpoint: {enabled: false}\n", waiting = "checkpoint: {enabled: true}\n",
                    background = "checkpoint: {enabled: true, is_async: true}\n", gpu = "hardware: {profile: h100}\n";
  const auto without = steady(none, "device: cpu"), with = steady(background, "device: cpu");
  CHECK(steady(waiting, "device: cpu").buffers == without.buffers);
  CHECK(with.buffers - without.buffers == Approx(with.weights + with.optimizer));  // float32: values and two moments
  CHECK(steady(none + gpu, "device: cuda").host == 0);
  CHECK(steady(waiting + gpu, "device: cuda").host > 0);  // a device's memory is no place to write from
}

TEST_CASE("a plan fits, is tight or does not fit", "[plan]") {
  const auto fit = [](const std::string& memory) {
    return planned(tiny("strategy: ddp", "hardware: {memory: " + memory + "}\n")).estimate->memory.fit;
  };
  const double need = planned(tiny("strategy: ddp")).estimate->memory.ranks[0].most().total();
  CHECK(fit("4GiB") == Fit::kFits);
  CHECK(fit(fmt::format("{:.0f}", need * 1.05)) == Fit::kTight);
  CHECK(fit(fmt::format("{:.0f}", need * 0.95)) == Fit::kDoesNotFit);
}

}  // namespace automodel::plan
