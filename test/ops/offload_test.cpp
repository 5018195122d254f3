// Activation offloading: copies go to other host memory here; everything else is as on a GPU.
#include "ops/offload.h"

#include <functional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/split.h"
#include "torch_catch.h"

namespace automodel::ops {
namespace {

constexpr std::int64_t kWidth = 8;

/// Layers of norm, matmul, gate and matmul, like the MLP of a decoder layer.
struct Model {
  struct Layer {
    Parameter norm, up, down;
  };
  std::vector<std::unique_ptr<Layer>> layers;

  explicit Model(int count) {
    const auto make = [](std::vector<std::int64_t> shape) {
      Parameter out{.name = "p", .shape = shape, .value = at::randn(shape, at::kDouble)};
      out.grad = at::randn(shape, at::kDouble);
      return out;
    };
    for (int i = 0; i < count; ++i)
      layers.push_back(
          std::make_unique<Layer>(Layer{make({kWidth}), make({4 * kWidth, kWidth}), make({kWidth, 2 * kWidth})}));
  }

  at::Tensor layer(std::size_t i, const at::Tensor& x) {
    auto& l = *layers[i];
    const auto y = rms_norm(x, l.norm, 1e-6);
    return x + linear(gated(linear(y, {&l.up}), Gate::kSilu), {&l.down});
  }

  std::vector<at::Tensor> gradients() {
    std::vector<at::Tensor> out;
    for (auto& l : layers)
      for (auto* p : {&l->norm, &l->up, &l->down}) {
        out.push_back(p->grad.clone());
        p->fresh = true;
      }
    return out;
  }

  /// A forward pass that offloads the first `away` layers, one group each. Returns the output.
  at::Tensor forward(at::Tensor x, ActivationOffload* offload, int away) {
    std::shared_ptr<ActivationOffload::Pass> pass;
    if (offload != nullptr) pass = offload->begin();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const int group = static_cast<int>(i);
      if (pass && group < away) {
        x = tap({x}, [pass, group] { pass->done(group); })[0];
        {
          const Recorded::Scope scope(pass->begin_group());
          x = layer(i, x);
        }
        pass->end_group();
        x = tap({x}, [pass, group] { pass->need(group); })[0];
        continue;
      }
      x = layer(i, x);
      if (pass && group == away) {
        pass->finish_forward();
        x = tap({x}, [pass] { pass->announce(); })[0];
      }
    }
    return x;
  }
};

/// Saves one tensor, which tests inspect.
class Keeper : public Backward {
 public:
  explicit Keeper(at::Tensor saved) : kept(std::move(saved)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    NoGraph guard;
    return {gradients[0] * kept};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(kept); }
  const char* name() const override { return "keeper"; }
  at::Tensor kept;
};
at::Tensor keep(const at::Tensor& x, const at::Tensor& kept, Keeper** seen = nullptr) {
  at::Tensor y;
  {
    NoGraph guard;
    y = x.detach() * kept;
  }
  auto keeper = std::make_unique<Keeper>(kept);
  if (seen != nullptr) *seen = keeper.get();
  record({y}, {x}, std::move(keeper));
  return y;
}

}  // namespace

TEST_CASE("offloading activations leaves outputs and gradients bitwise identical", "[ops]") {
  Model model(5);
  const auto data = at::randn({6, kWidth}, at::kDouble), seed = at::randn({6, kWidth}, at::kDouble);
  const auto run = [&](ActivationOffload* offload, int away) {
    const auto x = leaf(data.clone());
    const auto y = model.forward(x, offload, away);
    run_backward(Origin(y), seed);
    auto out = model.gradients();
    out.push_back(y.detach().clone());
    out.push_back(x.grad().clone());
    return out;
  };
  const auto expected = run(nullptr, 0);
  for (const bool double_buffering : {false, true})
    for (const bool retain : {false, true})
      for (const int away : {1, 2, 4}) {
        ActivationOffload offload(at::kCPU, {.double_buffering = double_buffering, .retain_host_buffers = retain});
        const auto found = run(&offload, away);
        REQUIRE(found.size() == expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i].equal(expected[i]));
        CHECK(offload.counts().out > 0);
        CHECK(offload.counts().out == offload.counts().back);
        CHECK(offload.counts().on_host == 0);
        CHECK(offload.counts().device_buffers == (double_buffering ? std::min(2, away) : away));
      }
}

TEST_CASE("every offloaded layer moves the same number of bytes to the host", "[ops]") {
  Model model(5);
  const auto bytes = [&](int away) {
    ActivationOffload offload(at::kCPU, {});
    const auto y = model.forward(leaf(at::randn({6, kWidth}, at::kDouble)), &offload, away);
    CHECK(offload.counts().on_host == offload.counts().out);
    CHECK(offload.counts().back == 0);
    return offload.counts().out;
  };
  // Per layer: the norm's input and rstd, the inputs of both matmuls and of the gate.
  const std::int64_t layer = 6 * 8 * (kWidth + 1 + kWidth + 4 * kWidth + 2 * kWidth);
  CHECK(bytes(1) == layer);
  CHECK(bytes(3) == 3 * layer);
}

TEST_CASE("a group is released when the next one ends and restored before its backward pass", "[ops]") {
  ActivationOffload offload(at::kCPU, {});
  auto pass = offload.begin();
  Keeper *first = nullptr, *second = nullptr;
  auto x = leaf(at::ones({4}, at::kDouble));
  const auto group = [&](at::Tensor y, Keeper** keeper) {
    const Recorded::Scope scope(pass->begin_group());
    return keep(y, at::arange(4, at::kDouble), keeper);
  };
  auto y = group(x, &first);
  pass->end_group();
  CHECK(first->kept.defined());  // still being copied
  y = group(y, &second);
  pass->end_group();
  CHECK_FALSE(first->kept.defined());
  CHECK(second->kept.defined());
  pass->finish_forward();
  CHECK_FALSE(second->kept.defined());
  pass->announce();
  CHECK_FALSE(second->kept.defined());
  pass->need(1);
  CHECK(second->kept.equal(at::arange(4, at::kDouble)));
  CHECK_FALSE(first->kept.defined());
  pass->need(0);
  CHECK(first->kept.equal(at::arange(4, at::kDouble)));
  CHECK_THROWS(pass->need(0));
}

TEST_CASE("views of one storage are offloaded once and share storage again when restored", "[ops]") {
  ActivationOffload offload(at::kCPU, {});
  auto pass = offload.begin();
  const auto whole = at::arange(24, at::kDouble).view({4, 6});
  std::vector<Keeper*> keepers(3);
  at::Tensor y = leaf(at::ones({4, 3}, at::kDouble));
  {
    const Recorded::Scope scope(pass->begin_group());
    y = keep(y, whole.narrow(1, 0, 3), &keepers[0]);
    y = keep(y, whole.narrow(1, 2, 3), &keepers[1]);
    y = keep(y, whole.narrow(1, 3, 3), &keepers[2]);
  }
  pass->end_group();
  pass->finish_forward();
  CHECK(offload.counts().out == 24 * 8);
  pass->need(0);
  CHECK(keepers[0]->kept.equal(whole.narrow(1, 0, 3)));
  CHECK(keepers[1]->kept.equal(whole.narrow(1, 2, 3)));
  CHECK(keepers[2]->kept.equal(whole.narrow(1, 3, 3)));
  CHECK(keepers[0]->kept.is_alias_of(keepers[1]->kept));
  CHECK_FALSE(keepers[0]->kept.is_alias_of(whole));
  run_backward(Origin(y), at::ones({4, 3}, at::kDouble));
}

TEST_CASE("deferred weight gradients keep restored operands from being overwritten", "[ops]") {
  Model model(6);
  const auto data = at::randn({6, kWidth}, at::kDouble), seed = at::randn({6, kWidth}, at::kDouble);
  const auto run = [&](ActivationOffload* offload) {
    const auto y = model.forward(leaf(data.clone()), offload, 5);
    WeightGradients queue;
    {
      const WeightGradients::Scope scope(&queue);
      run_backward(Origin(y), seed);
    }
    queue.drain();
    return model.gradients();
  };
  const auto expected = run(nullptr);
  ActivationOffload offload(at::kCPU, {.double_buffering = true});
  const auto found = run(&offload);
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i].equal(expected[i]));
}

TEST_CASE("retained host buffers are reused by later passes", "[ops]") {
  Model model(4);
  const auto buffers = [&](bool retain) {
    ActivationOffload offload(at::kCPU, {.retain_host_buffers = retain});
    for (int pass = 0; pass < 3; ++pass) {
      const auto y = model.forward(leaf(at::randn({6, kWidth}, at::kDouble)), &offload, 3);
      run_backward(Origin(y), at::ones({6, kWidth}, at::kDouble));
    }
    return offload.counts().host_buffers;
  };
  const int once = buffers(true);
  CHECK(buffers(false) == 3 * once);
}

TEST_CASE("a forward pass without a backward pass frees its host memory", "[ops]") {
  ActivationOffload offload(at::kCPU, {});
  Model model(3);
  {
    const auto y = model.forward(leaf(at::randn({6, kWidth}, at::kDouble)), &offload, 2);
    CHECK(offload.counts().on_host > 0);
  }
  CHECK(offload.counts().on_host == 0);
}

}  // namespace automodel::ops
