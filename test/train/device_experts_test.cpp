// Models with experts whose row counts stay on the device, against the same models with row counts on the host:
// emulated GPU kernels, bfloat16, every gradient of two steps of microbatches.
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>

#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "ops/cuda/emulated_groups.h"
#include "ops/cuda/observed_calls.h"
#include "torch_catch.h"
#include "train/gather.h"
#include "train/initial_values.h"
#include "train/runtime.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace automodel {
namespace {

struct Outcome {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients = {};
  int unordered = 0;  ///< operations that add rows in any order on a GPU
};

Outcome run(const std::string& model, const std::string& type, const std::string& strategy) {
  const std::string text = fmt::format(
      "device: cpu\n"
      "model: {{config: {{{}, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, "
      "num_key_value_heads: 2, vocab_size: 67, max_position_embeddings: 32}}, torch_dtype: {}}}\n"
      "dataset: {{_target_: mock, vocab_size: 67, seq_length: 15, num_samples: 64}}\n"
      "step_scheduler: {{global_batch_size: 4, local_batch_size: 2, max_steps: 10, num_epochs: null}}\n"
      "distributed: {{{}}}\n",
      model, type, strategy);
  const auto loaded = config::read_recipe(text, "experts.yaml", {}, [](const std::string&) { return std::nullopt; });
  REQUIRE(loaded.problems.empty());
  Outcome out;
  const auto ended = comm::run_ranks(1, [&](comm::World& world) {
    const train::Setup setup(loaded, world);
    train::Runtime runtime(setup.plan, world, train::initial_values(setup.plan, {.seed = setup.plan.weights.seed}));
    train::Trainer trainer(runtime, *setup.rates);
    const test::ObservedCalls observed([&out](const at::RecordFunction& call) {
      if (std::string_view(call.name()).find("index_add") == std::string_view::npos) return;
      for (const auto& sum : call.outputs())  // counts, which are one row, are exact in any order
        out.unordered += sum.isTensor() && sum.toTensor().dim() > 1 ? 1 : 0;
    });
    for (std::int64_t step = 0; step < 2; ++step) {
      const auto plan = setup.steps->plan(step);
      out.loss = trainer.gradients(step, setup.loader->load(plan.epoch, plan.step_in_epoch), false).loss;
    }
    out.gradients = train::gather_gradients(runtime);
  });
  INFO(ended.text);
  REQUIRE(ended.ok());
  return out;
}

/// The distance of two sets of gradients, relative to the size of the second; of parameters whose name has `part`.
double apart(const Outcome& a, const Outcome& b, const std::string& part = {}) {
  double difference = 0, size = 0;
  for (const auto& [name, value] : b.gradients) {
    if (name.find(part) == std::string::npos) continue;
    difference += (a.gradients.at(name) - value).square().sum().item<double>();
    size += value.square().sum().item<double>();
  }
  REQUIRE(size > 0);
  return std::sqrt(difference / size);
}

}  // namespace

TEST_CASE("a MoE model has the same gradients with row counts on the device and on the host", "[train]") {
  // Every token goes to every expert: no choice depends on rounding.
  const std::string all = ", output_router_logits: true, router_aux_loss_coef: 0.05";
  for (const std::string& model :
       {"model_type: qwen3_moe, head_dim: 8, num_experts: 3, num_experts_per_tok: 3, moe_intermediate_size: 16, "
        "tie_word_embeddings: false" +
            all,
        "model_type: gpt_oss, num_local_experts: 3, num_experts_per_tok: 3, head_dim: 8, sliding_window: 8" + all}) {
    ops::grouped_product_on_host_with(nullptr);
    const auto wide = run(model, "float32", "strategy: ddp");
    ops::grouped_product_on_host_with(ops::emulated_groups());
    for (const char* strategy :
         {"strategy: ddp", "strategy: fsdp2, reshard_after_forward: true, activation_checkpointing: true"}) {
      INFO(model << ", " << strategy);
      const auto before = ops::grouped_calls();
      const auto device = run(model, "bfloat16", strategy);
      const auto called = ops::grouped_calls();
      CHECK(called > before);
      CHECK(device.unordered == 0);
      ops::grouped_product_on_host_with(nullptr);
      const auto host = run(model, "bfloat16", strategy);
      ops::grouped_product_on_host_with(ops::emulated_groups());
      CHECK(ops::grouped_calls() == called);
      // Values are rounded by up to 1/512 of themselves in each of about twenty operations.
      constexpr double kRounded = 20.0 / 512;
      CHECK(std::abs(device.loss - host.loss) < kRounded * host.loss);
      CHECK(apart(device, host) < kRounded);
      CHECK(apart(device, host, "experts") < kRounded);
      CHECK(apart(device, wide) < 1.5 * apart(host, wide));
      CHECK(apart(device, wide, "experts") < 1.5 * apart(host, wide, "experts"));
    }
  }
}

}  // namespace automodel
