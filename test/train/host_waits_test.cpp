// Counts how often the host waits for a GPU, or fetches data from it, in the microbatches of a step. Runs on the CPU
// with emulated GPU kernels and observes every operation that goes through ATen's dispatcher; code that reads a
// tensor's memory without the dispatcher is not seen.
#include <map>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include <ATen/record_function.h>

#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "ops/cuda/emulated_flash.h"
#include "ops/cuda/emulated_groups.h"
#include "torch_catch.h"
#include "train/initial_values.h"
#include "train/runtime.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace automodel {
namespace {

/// Operations that give the host information on a tensor's contents.
bool waits(const at::RecordFunction& call) {
  const std::string name = call.name();
  for (const char* each : {"aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero", "aten::equal",
                           "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
                           "aten::bincount", "aten::repeat_interleave.Tensor"})
    if (name == each || (call.operator_name() && call.operator_name()->name == each &&
                         (call.operator_name()->overload_name.empty() || name == each)))
      return true;
  // Indexing by a mask counts its true elements.
  if (name == "aten::index" || name == "aten::index_put_")
    for (const auto& value : call.inputs())
      if (value.isList())
        for (const at::IValue& index : value.toListRef())
          if (index.isTensor() && index.toTensor().defined() && index.toTensor().scalar_type() == at::kBool)
            return true;
  return false;
}

/// Copies between host and device are not visible if both are the CPU. The host fetches only counts and float64 sums to
/// make decisions, with calls that name the CPU; such calls for float32 are for reduced gradients, which stay on the
/// device.
bool fetches(const at::RecordFunction& call) {
  if (std::string(call.name()) != "aten::to") return false;
  const auto inputs = call.inputs();
  if (inputs.size() < 5 || !inputs[3].isDevice() || !inputs[3].toDevice().is_cpu() || !inputs[0].isTensor())
    return false;
  const auto type = inputs[0].toTensor().scalar_type();
  return type == at::kLong || type == at::kDouble;
}

std::mutex mutex;
std::map<std::string, int> counted;
thread_local bool counting = false;  // ranks are threads: rank 0 counts

struct Run {
  std::string model = {};
  bool packed = false;
  int ranks = 1;
  std::string mesh = {};  ///< more keys of `distributed`
  std::string more = {};  ///< sections of the recipe
};

/// The waits and fetches of rank 0 in a step of `microbatches` microbatches, by operation.
std::map<std::string, int> asked(const Run& run, int microbatches) {
  const std::string text = fmt::format(
      "device: cpu\n"
      "model: {{config: {{{}, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 3, num_attention_heads: 4, "
      "num_key_value_heads: 2, vocab_size: 67, max_position_embeddings: 32}}, torch_dtype: bfloat16}}\n"
      "dataset: {{_target_: mock, vocab_size: 67, seq_length: 16, num_samples: 64}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: 2, max_steps: 10, num_epochs: null}}\n"
      "distributed: {{strategy: ddp{}}}\n{}",
      run.model, 2 * run.ranks * microbatches, run.mesh, run.more);
  const auto loaded = config::read_recipe(text, "waits.yaml", {}, [](const std::string&) { return std::nullopt; });
  REQUIRE(loaded.problems.empty());
  std::map<std::string, int> out;
  const auto outcome = comm::run_ranks(run.ranks, [&](comm::World& world) {
    const train::Setup setup(loaded, world);
    train::Runtime runtime(setup.plan, world, train::initial_values(setup.plan, {.seed = setup.plan.weights.seed}));
    train::Trainer trainer(runtime, *setup.rates);
    for (std::int64_t step = 0; step < 2; ++step) {  // the first step creates tables that stay
      const auto plan = setup.steps->plan(step);
      auto batches = setup.loader->load(plan.epoch, plan.step_in_epoch);
      for (auto& batch : batches) {
        batch.needs_segments = run.packed;
        for (std::size_t i = 0; run.packed && i < batch.segments.size(); ++i)
          batch.segments[i] = 1 + (i % 16 > 4 + i / 16 % 2 ? 1 : 0);
      }
      counting = step == 1 && world.rank() == 0;
      if (counting) counted.clear();
      trainer.step(step, batches, false);
      counting = false;
    }
    if (world.rank() == 0) out = counted;
  });
  INFO(outcome.text);
  REQUIRE(outcome.ok());
  return out;
}

/// The waits and fetches of each further microbatch: the loss is fetched once per step.
std::map<std::string, int> asked_by_each(const Run& run) {
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        if (counting && (waits(call) || fetches(call))) {
          const std::lock_guard lock(mutex);
          ++counted[call.name()];
        }
        return nullptr;
      })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  const auto one = asked(run, 1);
  const auto three = asked(run, 3);
  at::removeCallback(handle);
  CHECK(one.at("aten::_local_scalar_dense") > 0);  // the loss and the norm, so the observer works
  std::map<std::string, int> out;
  for (const auto& [name, count] : three) {
    const auto known = one.find(name);
    const int more = count - (known == one.end() ? 0 : known->second);
    if (more != 0) out[name] = more / 2;
  }
  return out;
}

std::map<std::string, int> asked_by_each(const std::string& model, bool packed = false) {
  return asked_by_each(Run{.model = model, .packed = packed});
}

using Asked = std::map<std::string, int>;
const Asked kNothing = {};

}  // namespace

TEST_CASE("microbatches of a dense model never make the host wait for the device", "[train]") {
  CHECK(asked_by_each("model_type: llama") == kNothing);
  CHECK(asked_by_each("model_type: gemma2, head_dim: 8, query_pre_attn_scalar: 8, sliding_window: 5") == kNothing);
  CHECK(asked_by_each("model_type: mistral, sliding_window: 5") == kNothing);
}

TEST_CASE("packed documents never make the host wait and use fused attention without masks", "[train]") {
  const auto before = ops::flash_calls();
  CHECK(asked_by_each("model_type: llama", true) == kNothing);
  const auto after = ops::flash_calls();
  const int steps = 2, layers = 3, passes = 2;
  CHECK(after.of_documents - before.of_documents == steps * layers * passes * (1 + 3));
}

namespace {

/// Three layers, one of them dense.
std::string experts(int width, const std::string& more = {}) {
  return fmt::format(
      "model_type: qwen3_moe, head_dim: 8, num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: {}, "
      "mlp_only_layers: [0], tie_word_embeddings: false{}",
      width, more);
}
const std::string kBalanced = ", output_router_logits: true, router_aux_loss_coef: 0.05";

}  // namespace

TEST_CASE("experts on one rank never make the host wait for the device", "[train]") {
  const auto before = ops::grouped_calls();
  CHECK(asked_by_each(experts(16)) == kNothing);
  const int steps = 2, layers = 2, products = 2 * 3;
  CHECK(ops::grouped_calls() - before == steps * layers * products * (1 + 3));
  CHECK(asked_by_each("model_type: mixtral, num_local_experts: 16, num_experts_per_tok: 1, sliding_window: null") ==
        kNothing);  // some experts get no tokens
  CHECK(asked_by_each("model_type: gpt_oss, num_local_experts: 4, num_experts_per_tok: 2, head_dim: 8, "
                      "sliding_window: 8") == kNothing);
}

TEST_CASE("the routers' auxiliary loss never makes the host wait for the device", "[train]") {
  CHECK(asked_by_each(experts(16, kBalanced)) == kNothing);
}

TEST_CASE("experts whose matmuls need row counts on the host fetch them once per layer", "[train]") {
  // The exceptions of docs/gpu.md; here a width that is not a multiple of 16 bytes.
  CHECK(asked_by_each(experts(12, kBalanced)) == Asked{{"aten::to", 2}});
}

TEST_CASE("experts on several ranks make the host wait once per layer and part of a microbatch", "[train]") {
  // The host must know how many rows are sent; two of the three layers have experts.
  Run run{.model = experts(16), .ranks = 2, .mesh = ", ep_size: 2"};
  CHECK(asked_by_each(run) == Asked{{"aten::to", 2}});
  run.model = experts(16, kBalanced);
  CHECK(asked_by_each(run) == Asked{{"aten::to", 2}});
  run.more = "model_parallel: {overlap_moe_expert_parallel_comm: true}\n";
  CHECK(asked_by_each(run) == Asked{{"aten::to", 4}});
}

}  // namespace automodel
