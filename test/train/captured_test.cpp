// Compares training with and without captured microbatches on the emulation of CUDA graphs: data, label counts, loss
// scales, accumulation and lengths change from step to step, and all results must be identical.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "ops/cuda/emulated_capture.h"
#include "torch_catch.h"
#include "train/initial_values.h"
#include "train/runtime.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace automodel {
namespace {

using Counts = pipeline::CapturedMicrobatches::Counts;

struct Case {
  std::string model = "model_type: llama";
  std::string type = "float64";
  std::string distributed = "strategy: ddp";
  std::string more = {};  ///< further sections of the recipe
  int ranks = 1, steps = 4;
  int local = 2;                           ///< sequences per batch; a step has up to 4 per rank
  std::vector<std::int64_t> lengths = {};  ///< sequence length by step; 16 for steps beyond the end
  bool packed_last = false;                ///< the last step has packed sequences
};

/// Results of a step: loss, gradient norm, gradients and weights.
struct Left {
  double loss = 0, norm = 0;
  std::vector<at::Tensor> tensors = {};
};
struct Outcome {
  std::vector<Left> steps = {};  ///< of rank 0
  Counts counts = {};
};

/// The first `length` tokens of each row.
data::Batch shortened(data::Batch batch, std::int64_t length) {
  const auto cut = [&](std::vector<std::int64_t>& values) {
    std::vector<std::int64_t> out;
    for (int row = 0; row < batch.rows; ++row)
      out.insert(out.end(), values.begin() + row * batch.length, values.begin() + row * batch.length + length);
    values = std::move(out);
  };
  cut(batch.input_ids);
  cut(batch.labels);
  cut(batch.positions);
  decltype(batch.segments) segments;
  for (int row = 0; row < batch.rows; ++row)
    segments.insert(segments.end(), batch.segments.begin() + row * batch.length,
                    batch.segments.begin() + row * batch.length + length);
  batch.segments = std::move(segments);
  batch.length = length;
  return batch;
}

/// The batches of step `step`, varied by step: number of batches, sequence length, ignored labels and positions.
std::vector<data::Batch> batches_of(const Case& run, std::int64_t step, std::vector<data::Batch> batches) {
  const auto place = static_cast<std::size_t>(step);
  batches.resize(1 + place % batches.size());
  for (auto& batch : batches) {
    if (place < run.lengths.size()) batch = shortened(batch, run.lengths[place]);
    for (std::size_t i = 0; i < batch.labels.size(); ++i)
      if ((i + place) % (place + 2) == 0) batch.labels[i] = data::kIgnoredLabel;
    for (auto& position : batch.positions) position = (position + step) % batch.length;
    batch.num_label_tokens = static_cast<std::int64_t>(batch.labels.size()) -
                             std::count(batch.labels.begin(), batch.labels.end(), data::kIgnoredLabel);
    batch.needs_segments = run.packed_last && step + 1 == run.steps;
    for (std::size_t i = 0; batch.needs_segments && i < batch.segments.size(); ++i)
      batch.segments[i] = 1 + (i % static_cast<std::size_t>(batch.length) > 4 ? 1 : 0);
  }
  return batches;
}

std::vector<parallel::UnitStorage*> storages_of(train::Runtime& runtime) {
  std::vector<parallel::UnitStorage*> out;
  for (auto* stage : runtime.stages())
    for (auto* storage : stage->data_parallel().storages()) out.push_back(storage);
  return out;
}

/// The tensors that kernels may write to by raw address: weights and gradients of all parameters.
std::vector<at::Tensor> stay(train::Runtime& runtime) {
  std::vector<at::Tensor> out;
  for (auto* storage : storages_of(runtime))
    for (const auto* weight : storage->unit().weights)
      for (const auto* each : {&weight->parameter.value, &weight->parameter.grad})
        if (each->defined()) out.push_back(*each);
  return out;
}

Outcome train_with(const Case& run, bool captured) {
  const std::string text = fmt::format(
      "device: cpu\n"
      "model: {{config: {{{}, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, "
      "num_key_value_heads: 2, vocab_size: 67, max_position_embeddings: 64}}, torch_dtype: {}}}\n"
      "dataset: {{_target_: mock, vocab_size: 67, seq_length: 16, num_samples: 256}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}, max_steps: 20, num_epochs: null}}\n"
      "distributed: {{{}}}\noptimizer: {{lr: 0.01}}\n{}\n",
      run.model, run.type, 4 * run.ranks, run.local, run.distributed, run.more);
  const auto loaded = config::read_recipe(text, "captured.yaml", {}, [](const std::string&) { return std::nullopt; });
  for (const auto& problem : loaded.problems) UNSCOPED_INFO(problem.message);
  REQUIRE(loaded.problems.empty());
  Outcome out;
  const auto outcome = comm::run_ranks(run.ranks, [&](comm::World& world) {
    const train::Setup setup(loaded, world);
    plan::TrainingPlan plan = setup.plan;
    plan.execution.capture.captured = captured;
    if (captured) plan.sharding.overlap_reduction = false;
    train::Runtime* made = nullptr;
    train::Runtime runtime(plan, world, train::initial_values(setup.plan, {.seed = plan.weights.seed}),
                           {.capture = ops::emulated_capture([&] { return stay(*made); })});
    made = &runtime;
    train::Trainer trainer(runtime, *setup.rates,
                           {.grad_scale = [](std::int64_t step) { return step % 2 == 0 ? 1.0 : 4.0; }});
    for (std::int64_t step = 0; step < run.steps; ++step) {
      const auto at = setup.steps->plan(step);
      const auto result =
          trainer.step(step, batches_of(run, step, setup.loader->load(at.epoch, at.step_in_epoch)), false);
      if (world.rank() != 0) continue;
      auto& left = out.steps.emplace_back(Left{result.loss, result.grad_norm});
      for (auto* storage : storages_of(runtime))
        for (const auto& each : {storage->gradient(), storage->master()})
          if (each.defined()) left.tensors.push_back(each.clone());
    }
    if (captured && world.rank() == 0) out.counts = runtime.pipeline().captured()->counts();
  });
  INFO(outcome.text);
  REQUIRE(outcome.ok());
  return out;
}

Counts check_same(const Case& run) {
  INFO(run.model << " in " << run.type << ", " << run.distributed << " on " << run.ranks << " ranks " << run.more);
  ops::capture_kernels();
  const auto eager = train_with(run, false), captured = train_with(run, true);
  REQUIRE(eager.steps.size() == captured.steps.size());
  for (std::size_t step = 0; step < eager.steps.size(); ++step) {
    const auto &want = eager.steps[step], &got = captured.steps[step];
    INFO("step " << step);
    CHECK(got.loss == want.loss);
    CHECK(got.norm == want.norm);
    REQUIRE(got.tensors.size() == want.tensors.size());
    std::size_t differ = 0;
    for (std::size_t i = 0; i < want.tensors.size(); ++i) differ += at::equal(got.tensors[i], want.tensors[i]) ? 0 : 1;
    CHECK(differ == 0);
  }
  return captured.counts;
}

}  // namespace

TEST_CASE("training with captured microbatches is bitwise identical", "[train]") {
  const auto before = ops::captured_calls();
  // Steps have 1 and 2 batches alternately, each of one microbatch.
  const auto counts = check_same({});
  CHECK(counts.warm_ups == 2);
  CHECK(counts.captures == 1);
  CHECK(counts.replays == 6 - 2);
  CHECK(counts.usual == 0);
  const auto after = ops::captured_calls();
  CHECK(after.operations - before.operations > 50);
  CHECK(after.kernels - before.kernels > 10);
  CHECK(after.waits == before.waits);
}

TEST_CASE("each microbatch shape is captured separately, and shapes beyond a limit run eagerly", "[train]") {
  // One batch per step, so a shape is captured in its third step.
  const auto counts = check_same({.steps = 8, .local = 4, .lengths = {16, 8, 16, 8, 16, 8, 16, 8}});
  CHECK(counts.warm_ups == 4);
  CHECK(counts.captures == 2);
  CHECK(counts.replays == 4);
  const auto many = check_same({.steps = 6, .local = 4, .lengths = {16, 14, 12, 10, 8, 6}});
  CHECK(many.warm_ups == 4);
  CHECK(many.captures == 0);
  CHECK(many.usual == 2);
}

TEST_CASE("packed microbatches run eagerly beside captured ones", "[train]") {
  const auto counts = check_same({.packed_last = true});
  CHECK(counts.captures == 1);
  CHECK(counts.usual == 2);
}

TEST_CASE("a captured chunked loss reads its scale and seed from the device", "[train]") {
  for (const char* type : {"float64", "float32", "bfloat16"})
    CHECK(check_same({.type = type, .more = "loss_fn: {_target_: chunked_ce, chunk_len: 24}"}).replays == 4);
}

TEST_CASE("dense models of every type and kind are captured", "[train]") {
  const std::string gemma = "model_type: gemma2, head_dim: 8, query_pre_attn_scalar: 8, sliding_window: 5";
  for (const char* type : {"float32", "bfloat16", "float16"}) CHECK(check_same({.type = type}).replays == 4);
  for (const char* type : {"float64", "bfloat16"}) {
    CHECK(check_same({.model = gemma, .type = type}).replays == 4);
    CHECK(check_same({.model = "model_type: qwen2, tie_word_embeddings: true", .type = type}).replays == 4);
    CHECK(check_same({.model = "model_type: starcoder2", .type = type}).replays == 4);
  }
}

TEST_CASE("microbatches with recomputation, autocast and adapters are captured", "[train]") {
  for (const char* scope : {"full", "selective"})
    CHECK(check_same({.distributed = fmt::format("strategy: ddp, activation_checkpointing: {}", scope)}).replays == 4);
  CHECK(check_same({.type = "float32", .more = "model_parallel: {enable_autocast: true, autocast_dtype: bfloat16}"})
            .replays == 4);
  CHECK(check_same({.type = "bfloat16", .more = "model_parallel: {gradient_accumulation_fusion: true}"}).replays == 4);
  CHECK(check_same({.more = "peft: {dim: 4, alpha: 6, match_all_linear: true}"}).replays == 4);
}

TEST_CASE("data-parallel ranks capture the work between their gradient reductions", "[train]") {
  for (const char* mesh : {"strategy: ddp", "strategy: megatron_fsdp, zero_dp_strategy: 1"})
    for (const char* type : {"float64", "bfloat16"})
      CHECK(check_same({.type = type, .distributed = mesh, .ranks = 2}).replays == 4);
}

TEST_CASE("the emulation detects what a CUDA graph would get wrong", "[train]") {
  ops::capture_kernels();
  const auto make = ops::emulated_capture([] { return std::vector<at::Tensor>{}; });
  const auto capture = make();
  auto x = at::ones({4}), out = at::zeros({4});
  double factor = 2;
  const auto work = capture->capture([&] { out.add_(x * factor); });
  CHECK(at::equal(out, at::zeros({4})));  // a capture has no effect
  factor = 3;
  x.fill_(5);
  work->replay();
  CHECK(at::equal(out, at::full({4}, 10)));  // the factor at capture, the current contents of x
  work->replay();
  CHECK(at::equal(out, at::full({4}, 20)));

  const auto waits = ops::captured_calls().waits;
  CHECK_THROWS_WITH(capture->capture([&] { factor = x.sum().item<double>(); }), Catch::Contains("the host waits"));
  CHECK(ops::captured_calls().waits == waits + 1);

  at::Tensor inside;
  const auto leaks = capture->capture([&] { inside = x * 2; });
  const auto reads = capture->capture([&] { out.copy_(inside); });
  leaks->replay();
  CHECK(at::equal(inside, at::full({4}, 10)));
  x = at::ones({4});  // frees the memory used by the capture
  CHECK_THROWS_WITH(work->replay(), Catch::Contains("was freed"));
}

}  // namespace automodel
