// Sharding of weights and gradients on ranks that are threads, with messages that arrive as late as they may.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include "comm/late_group.h"
#include "comm/loopback/loopback.h"
#include "ops/parameter.h"
#include "parallel/data/data_parallel.h"
#include "torch_catch.h"

namespace automodel::parallel {
namespace {

struct Strategy {
  std::string name;
  StorageOptions options;
  int ranks = 2;
  int replicas = 1;
};

StorageOptions in_float64() {
  StorageOptions out;
  out.compute = out.master = out.gradient = out.reduce = at::kDouble;
  out.sharding.overlap_gather = true;
  out.sharding.forward_prefetch = 1;
  out.sharding.backward_prefetch = 2;
  return out;
}

std::vector<Strategy> strategies() {
  const auto ddp = in_float64();
  auto pieces = ddp;
  pieces.sharding.bucket_bytes = 64;
  auto zero1 = ddp;
  zero1.sharding.optimizer = true;
  auto late = zero1;
  late.sharding.overlap_gather = late.sharding.overlap_reduction = false;
  auto zero2 = zero1;
  zero2.sharding.gradients = true;
  auto each = zero2;
  each.sharding.defer_reduction = false;
  auto zero3 = zero2;
  zero3.sharding.parameters = zero3.sharding.reshard_after_forward = true;
  auto fsdp = zero3;
  fsdp.sharding.defer_reduction = false;
  auto buffers = fsdp;
  buffers.sharding.double_buffer = true;
  auto stage = zero3;
  stage.sharding.whole_stage = true;
  return {{"DDP", ddp},
          {"DDP in small pieces", pieces, 3},
          {"ZeRO-1", zero1},
          {"ZeRO-1 without overlap", late, 3},
          {"ZeRO-2", zero2},
          {"ZeRO-2, reduced after each microbatch", each},
          {"ZeRO-3", zero3, 3},
          {"FSDP", fsdp},
          {"FSDP with two buffers", buffers},
          {"ZeRO-3 of the whole stage", stage},
          {"HSDP", fsdp, 4, 2},
          {"HSDP, reduced once", zero3, 4, 2},
          {"DDP of two copies", ddp, 4, 2}};
}

/// An embedding and three layers of a matrix and a vector.
std::vector<arch::Parameter> parameters() {
  std::vector<arch::Parameter> out = {
      {.fqn = "embedding.weight", .shape = {7, 2}, .role = arch::Role::kEmbedding, .part = arch::Part::kNone}};
  for (int layer = 0; layer < 3; ++layer) {
    const auto prefix = fmt::format("layers.{}.", layer);
    out.push_back({.fqn = prefix + "up.weight",
                   .shape = {3, 5},
                   .role = arch::Role::kMlp,
                   .part = arch::Part::kUp,
                   .layer = layer});
    out.push_back({.fqn = prefix + "norm.weight",
                   .shape = {5},
                   .role = arch::Role::kNorm,
                   .part = arch::Part::kFeedNorm,
                   .layer = layer});
  }
  return out;
}

/// Different numbers for every element of every weight.
at::Tensor numbers_of(const model::Weight& weight) {
  const auto name = weight.info.fqn;
  const double base = 100.0 * (weight.info.layer + 1) + (name.find("norm") != std::string::npos ? 50 : 0);
  return at::arange(weight.parameter.numel(), at::kDouble) + base;
}

/// A stage's storage on one rank.
struct Bound {
  model::Weights weights;
  std::shared_ptr<DataParallel> engine;

  Bound(comm::World& world, const Strategy& strategy)
      : weights(
            parameters(), [](const arch::Parameter&) { return model::Placement{}; },
            strategy.options.sharding.whole_stage) {
    const int shards = world.size() / strategy.replicas;
    const auto group = [&](int first, int step, int count, const char* name) {
      std::vector<int> ranks;
      for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
      return std::make_shared<test::LateGroup>(world.group(ranks, name));
    };
    ReduceGroups groups;
    groups.shard = group(world.rank() / shards * shards, 1, shards, "shard");
    if (strategy.replicas > 1) groups.replicate = group(world.rank() % shards, shards, strategy.replicas, "replicate");
    engine = std::make_shared<DataParallel>(weights, strategy.options, groups, groups);
    engine->bind([](const model::Weight& weight, std::int64_t first, at::Tensor out) {
      out.copy_(numbers_of(weight).narrow(0, first, out.numel()));
    });
  }

  int units() const { return static_cast<int>(weights.units().size()); }
  const std::vector<model::Weight*>& unit(int number) const {
    return weights.units()[static_cast<std::size_t>(number)].weights;
  }
  bool here(int unit_number) const { return unit(unit_number).front()->parameter.here(); }
  /// Units whose unsharded gradients have memory.
  int whole_gradients() const {
    int out = 0;
    for (int i = 0; i < units(); ++i) out += unit(i).front()->parameter.grad.defined() ? 1 : 0;
    return out;
  }
};

/// Runs `body` on the strategy's ranks; texts that it returns are failures.
void on_ranks(const Strategy& strategy, const std::function<std::string(comm::World&, Bound&)>& body) {
  INFO(strategy.name);
  std::vector<std::string> failures(static_cast<std::size_t>(strategy.ranks));
  const auto run = [&](comm::World& world) {
    Bound bound(world, strategy);
    failures[static_cast<std::size_t>(world.rank())] = body(world, bound);
  };
  const auto outcome =
      comm::run_ranks(strategy.ranks, run, {.deadline = std::chrono::seconds(30), .background_progress = false});
  INFO(outcome.text);
  CHECK(outcome.ok());
  for (const auto& each : failures) CHECK(each == "");
}

/// What is wrong with the values of a unit that should be numbers_of() plus `more`.
std::string wrong_values(const Bound& bound, int unit, double more) {
  for (const auto* weight : bound.unit(unit)) {
    if (!weight->parameter.value.defined()) return weight->info.fqn + " has no value";
    if (!at::equal(weight->parameter.value.reshape({-1}), numbers_of(*weight) + more))
      return weight->info.fqn + " has a wrong value";
  }
  return "";
}

/// Microbatch `number` of a step: every rank adds its rank + 1 times the microbatch's number + 1 to all gradients but
/// those of the last layer's norm, which no computation reaches.
std::string run_microbatch(comm::World& world, Bound& bound, int number, double more, bool last) {
  auto& engine = *bound.engine;
  engine.unshard();
  for (int unit = 0; unit < bound.units(); ++unit) {
    engine.before_forward(unit);
    if (auto wrong = wrong_values(bound, unit, more); !wrong.empty()) return "forward: " + wrong;
    engine.after_forward(unit);
  }
  if (last) engine.last_backward();
  for (int unit = bound.units() - 1; unit >= 0; --unit) {
    engine.before_backward(unit);
    if (auto wrong = wrong_values(bound, unit, more); !wrong.empty()) return "backward: " + wrong;
    for (auto* weight : bound.unit(unit))
      if (weight->info.fqn != "layers.2.norm.weight")
        ops::accumulate(weight->parameter,
                        (numbers_of(*weight) * ((world.rank() + 1) * (number + 1))).view(weight->parameter.shape));
    engine.after_backward(unit);
    const auto& options = engine.options();
    if (options.sharding.gradients && !options.sharding.defer_reduction && bound.whole_gradients() > 2)
      return "more than two units hold unsharded gradients";
  }
  engine.reshard();
  return "";
}

std::string wrong_gradients(Bound& bound, double factor) {
  for (auto* storage : bound.engine->storages())
    for (const auto& segment : storage->segments()) {
      const auto got = storage->gradient().narrow(0, segment.offset, segment.length);
      auto want = numbers_of(*segment.weight).narrow(0, segment.first, segment.length) * factor;
      if (segment.weight->info.fqn == "layers.2.norm.weight") want.zero_();
      if (!at::equal(got, want)) return segment.weight->info.fqn + " has a wrong gradient";
    }
  return "";
}

}  // namespace

TEST_CASE("weights are whole wherever they are used, and gradients are summed over ranks and microbatches") {
  constexpr int kMicrobatches = 3, kSteps = 2;
  for (const auto& strategy : strategies())
    on_ranks(strategy, [&](comm::World& world, Bound& bound) -> std::string {
      const double ranks = world.size() * (world.size() + 1) / 2.0,
                   microbatches = kMicrobatches * (kMicrobatches + 1) / 2.0;
      for (int step = 0; step < kSteps; ++step) {
        bound.engine->begin_step();
        for (int i = 0; i < kMicrobatches; ++i)
          if (auto wrong = run_microbatch(world, bound, i, step, i + 1 == kMicrobatches); !wrong.empty())
            return fmt::format("step {}, microbatch {}, {}", step, i, wrong);
        bound.engine->reduce();
        bound.engine->finish();
        if (auto wrong = wrong_gradients(bound, ranks * microbatches); !wrong.empty())
          return fmt::format("step {}: {}", step, wrong);
        // The optimizer's update: every value grows by one.
        for (auto* storage : bound.engine->storages()) storage->master().add_(1);
        bound.engine->publish();
      }
      return "";
    });
}

TEST_CASE("weights of an update are used only after their gather, however long it takes") {
  for (auto strategy : strategies()) {
    if (!strategy.options.sharding.optimizer || strategy.options.sharding.parameters) continue;
    for (const bool overlap : {false, true}) {
      strategy.options.sharding.overlap_gather = overlap;
      on_ranks(strategy, [&](comm::World&, Bound& bound) -> std::string {
        for (auto* storage : bound.engine->storages()) storage->master().add_(1);
        bound.engine->publish();
        // With overlap they are still on their way, else publish() has waited.
        if (wrong_values(bound, 1, 1).empty() == overlap) return "publish() waited, or did not";
        for (int unit = 0; unit < bound.units(); ++unit) {
          bound.engine->before_forward(unit);
          if (auto wrong = wrong_values(bound, unit, 1); !wrong.empty()) return wrong;
        }
        return "";
      });
    }
  }
}

TEST_CASE("weights that were sharded are freed after use, except for the last unit of the forward pass") {
  for (const auto& strategy : strategies()) {
    if (!strategy.options.sharding.reshard_after_forward || strategy.options.sharding.whole_stage) continue;
    on_ranks(strategy, [&](comm::World&, Bound& bound) -> std::string {
      auto& engine = *bound.engine;
      const int last = bound.units() - 1;
      for (int unit = 0; unit <= last; ++unit) {
        engine.before_forward(unit);
        engine.after_forward(unit);
        if (bound.here(unit) != (unit == last)) return fmt::format("unit {} after its forward pass", unit);
      }
      engine.reshard();
      for (int unit = 0; unit <= last; ++unit)
        if (bound.here(unit)) return fmt::format("unit {} after RESHARD", unit);
      return "";
    });
  }
}

TEST_CASE("a unit takes the buffer of units that were gathered ahead of it in vain") {
  for (const auto& strategy : strategies()) {
    if (!strategy.options.sharding.double_buffer) continue;
    on_ranks(strategy, [&](comm::World&, Bound& bound) -> std::string {
      auto& engine = *bound.engine;
      engine.before_forward(1);  // and unit 2 ahead: both buffers of the layers are taken
      engine.before_backward(3);
      if (auto wrong = wrong_values(bound, 3, 0); !wrong.empty()) return wrong;
      if (bound.here(1)) return "unit 1 still has a buffer";
      engine.before_backward(2);
      return wrong_values(bound, 2, 0) + wrong_values(bound, 3, 0);
    });
  }
}

TEST_CASE("settled gradients stay where they are, and are zero until something is added") {
  const Strategy strategy{"DDP", in_float64()};
  on_ranks(strategy, [&](comm::World& world, Bound& bound) -> std::string {
    auto& engine = *bound.engine;
    engine.begin_step();
    for (int unit = 0; unit < bound.units(); ++unit)
      for (auto* weight : bound.unit(unit)) weight->parameter.grad.fill_(99);
    engine.settle();
    for (int unit = 0; unit < bound.units(); ++unit)
      for (auto* weight : bound.unit(unit)) {
        if (weight->parameter.fresh || weight->parameter.grad.any().item<bool>()) return weight->info.fqn;
        weight->parameter.grad.view(-1).add_(numbers_of(*weight) * (world.rank() + 1));
      }
    engine.settle();  // another run of the step
    for (auto* weight : bound.unit(3))
      if (weight->info.fqn == "layers.2.norm.weight") weight->parameter.grad.zero_();
    engine.reduce();
    engine.finish();
    return wrong_gradients(bound, 3);
  });
}

}  // namespace automodel::parallel
