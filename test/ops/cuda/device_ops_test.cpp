// Operations whose GPU kernels have no CPU loop to compare with, and those that a GPU computes together.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "ops/activation.h"
#include "ops/adam.h"
#include "ops/against_autograd.h"
#include "ops/kernels/device.h"
#include "ops/linear.h"
#include "ops/low_rank.h"
#include "ops/norm.h"
#include "ops/parameter.h"
#include "ops/routing.h"

namespace automodel::ops {
namespace {

/// The results of `compute` with the CPU loops and with the device's kernels.
template <class Compute>
auto both(const Compute& compute) {
  const auto* table = device_kernels(at::empty({0}));
  REQUIRE(table != nullptr);
  compute_on_host_with(nullptr);
  auto loops = compute();
  compute_on_host_with(table);
  return std::pair(loops, compute());
}

}  // namespace

TEST_CASE("LayerNorm after a residual addition matches ATen", "[device]") {
  for (const auto type : kTypes) {
    auto weight = make({37}, type), bias = make({37}, type);
    const auto x = input({5, 37}, type), delta = input({5, 37}, type);
    compare(
        type, {x, delta}, {&weight, &bias},
        [&] {
          const auto [sum, y] = add_layer_norm(x, delta, &weight, &bias, 1e-5, 1);
          return sum * y;
        },
        [](const auto& in, const auto& p) {
          const auto sum = in[0] + in[1];
          return sum * at::layer_norm(sum, {37}, p[0] + 1, p[1], 1e-5);
        });
  }
}

TEST_CASE("the paired gate of gpt-oss matches its definition", "[device]") {
  for (const auto type : kTypes) {
    const auto x = input({4, 42}, type);
    compare(
        type, {x}, {},
        [&] {
          return paired_gate(x, {1.702, 0.8});
        },
        [](const auto& in, const auto&) {
          const auto pairs = in[0].view({4, 21, 2});
          const auto gate = pairs.select(2, 0).clamp(std::nullopt, 0.8), up = pairs.select(2, 1).clamp(-0.8, 0.8);
          return (up + 1) * gate * at::sigmoid(gate * 1.702);
        });
  }
}

TEST_CASE("top-k matches ATen, and expert choices are sorted alike on CPU and device", "[device]") {
  const auto scores = at::randn({50, 16});
  CHECK(top_k(scores, 4).equal(std::get<1>(at::topk(scores, 4))));
  const auto choices = at::randint(0, 7, {50, 4}, at::TensorOptions().dtype(at::kLong));
  const auto [loops, device] = both([&] {
    const auto sorted = sort_choices(choices, 7);
    return std::vector{sorted.from, sorted.place, sorted.counts};
  });
  for (std::size_t i = 0; i < loops.size(); ++i) CHECK(loops[i].equal(device[i]));
}

TEST_CASE("adapter dropout draws the same numbers on CPU and device", "[device]") {
  auto weight = make({12, 40}, at::kFloat), a = make({4, 40}, at::kFloat), b = make({12, 4}, at::kFloat);
  a.name = "q_proj.lora_A.weight";
  auto draw = std::make_shared<DropoutDraw>();
  draw->seed = 5;
  draw->step = 3;
  draw->tokens = {7, 8, 1000, 3, 1 << 30, 2};
  Linear layer{.weights = {&weight}};
  layer.adapters = {LowRank{.a = &a,
                            .b = &b,
                            .scale = 2,
                            .dropout = 0.4,
                            .dropout_first = true,
                            .features = {{3, 20}, {50, 71}},
                            .width = 99}};
  layer.draw = draw;
  const auto x = at::randn({6, 40});
  const auto [loops, device] = both([&] { return linear(x, layer); });
  CHECK(distance(device, loops) < tolerance(at::kFloat));
  CHECK(distance(device, at::matmul(x, weight.value.t())) > 0.01);  // the adapter has an effect
}

TEST_CASE("sums of squares per group and Adam over pieces are equal on CPU and device", "[device]") {
  const auto run = [] {
    const auto x = at::arange(70000, at::TensorOptions().dtype(at::kDouble)).sin_().to(at::kFloat);
    SquareSums sums(3);
    sums.add(0, x.narrow(0, 0, 1001));
    sums.add(1, x.narrow(0, 1001, 68000));
    sums.add(0, x.narrow(0, 69001, 999));
    auto totals = sums.totals();
    auto value = x.clone(), mean = at::zeros_like(x), square = at::zeros_like(x);
    std::vector<AdamPiece> pieces;
    for (const auto& [begin, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 30001}, {30001, 39999}}) {
      const auto part = [first = begin, count = n](const at::Tensor& t) { return t.narrow(0, first, count); };
      pieces.push_back({part(value), part(x).to(at::kBFloat16), part(mean), part(square), at::Tensor(),
                        begin == 0 ? 0.1 : 0.2, 0.01});
    }
    adam(pieces, {.lr = 9,
                  .beta1 = 0.9,
                  .beta2 = 0.99,
                  .eps = 1e-8,
                  .weight_decay = 9,
                  .correction1 = 0.1,
                  .correction2 = 0.01,
                  .gradient_scale = 0.5,
                  .decoupled = true,
                  .maximize = false});
    return std::vector{at::from_blob(totals.data(), {3}, at::TensorOptions().dtype(at::kDouble)).clone(), value, mean,
                       square};
  };
  const auto [loops, device] = both(run);
  CHECK(loops[0][2].item<double>() == 0);
  for (std::size_t i = 0; i < loops.size(); ++i) CHECK(distance(device[i], loops[i]) < tolerance(at::kFloat));
}

TEST_CASE("weight gradients of bfloat16 operands are added to float32 without being rounded", "[device]") {
  Parameter weight{.name = "w", .shape = {4, 8}, .grad = at::zeros({4, 8}, at::kFloat)};
  const auto gradient = at::randn({16, 4}).to(at::kBFloat16), x = at::randn({16, 8}).to(at::kBFloat16);
  for (int microbatch = 0; microbatch < 2; ++microbatch) accumulate_product({&weight}, gradient, x);
  // float32 sums of 16 exact products; rounding to bfloat16 would show as 1/256 or more.
  CHECK(distance(weight.grad, at::matmul(gradient.to(at::kDouble).t(), x.to(at::kDouble)) * 2) < 1e-5);
}

}  // namespace automodel::ops
