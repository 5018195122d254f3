// Adapters with magnitudes (DoRA): one layer against the PEFT library, and every gradient against the forward pass,
// also with dropout.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include "golden_file.h"
#include "ops/linear.h"
#include "torch_catch.h"

namespace automodel::ops {
namespace {

constexpr std::int64_t kRows = 5, kIn = 12, kOut = 8, kRank = 3;
constexpr double kScale = 7.0 / kRank;
constexpr double kTolerance = 1e-12;  // sums of at most 12 terms of size 1 in float64

/// The numbers of record.py.
at::Tensor numbers(int name, std::vector<std::int64_t> shape) {
  auto out = at::empty(shape, at::kDouble);
  auto* to = out.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    auto mixed = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i + 1000 * name) * 2654435761U + 974711U);
    mixed = (mixed ^ (mixed >> 15U)) * 2246822519U;
    mixed ^= mixed >> 13U;
    to[i] = static_cast<double>(mixed >> 8U) * 0x1p-23 - 1;
  }
  return out;
}

Parameter parameter(const std::string& name, const at::Tensor& value, bool trained) {
  Parameter out{.name = name, .shape = value.sizes().vec(), .value = value, .frozen = !trained};
  if (trained) out.grad = at::zeros_like(value);
  return out;
}

/// A layer with an adapter; only trained parameters have gradients.
struct Layer {
  explicit Layer(bool transposed = false)
      : transposed_(transposed),
        weight(parameter("m.weight", transposed ? numbers(1, {kOut, kIn}).t().contiguous() : numbers(1, {kOut, kIn}),
                         false)) {}
  Linear linear(double dropout = 0, bool first = false) {
    LowRank term{.a = &a, .b = &b, .magnitude = &m, .scale = kScale, .dropout = dropout, .dropout_first = first};
    const auto width = first ? kIn : kOut;
    term.features = {{0, width}};
    term.width = width;
    Linear out{.weights = {&weight}, .biases = {&bias}, .transposed = transposed_, .adapters = {term}};
    auto draw = std::make_shared<DropoutDraw>();
    draw->seed = 3;
    for (std::int64_t i = 0; i < kRows; ++i) draw->tokens.push_back(i);
    if (dropout > 0) out.draw = draw;
    return out;
  }
  bool transposed_;
  Parameter weight, bias = parameter("m.bias", numbers(2, {kOut}), false);
  Parameter a = parameter("m.lora_A.weight", numbers(3, {kRank, kIn}), true),
            b = parameter("m.lora_B.weight", numbers(4, {kOut, kRank}), true),
            m = parameter("m.lora_magnitude_vector", numbers(5, {kOut}) + 2, true);
};

double times(const at::Tensor& a, const at::Tensor& b) {
  return (a * b).sum().item<double>();
}

}  // namespace

TEST_CASE("outputs and gradients of a DoRA layer equal those of the PEFT library", "[ops]") {
  const auto recorded = golden::load("dora/values.json");
  const auto expected = [&](const char* name, const at::Tensor& like) {
    auto values = recorded[name].get<std::vector<double>>();
    return at::from_blob(values.data(), like.sizes(), at::kDouble).clone();
  };
  for (const bool transposed : {false, true}) {
    Layer layer(transposed);
    const auto x = numbers(6, {kRows, kIn}), gradient = numbers(7, {kRows, kOut});
    const auto y = linear(x, layer.linear());
    CHECK(at::allclose(y, expected("y", y), 0, kTolerance));
    const auto ready = with_lengths(layer.linear());
    const auto dx = input_gradient(gradient, ready);
    CHECK(at::allclose(dx, expected("dx", dx), 0, kTolerance));
    weight_gradients(gradient, x, ready);
    CHECK(at::allclose(layer.a.grad, expected("da", layer.a.grad), 0, kTolerance));
    CHECK(at::allclose(layer.b.grad, expected("db", layer.b.grad), 0, kTolerance));
    CHECK(at::allclose(layer.m.grad, expected("dm", layer.m.grad), 0, kTolerance));
  }
}

TEST_CASE("gradients of a DoRA layer match its forward pass, with and without dropout", "[ops]") {
  // With fixed lengths, the output is linear in each of x, A, B and m.
  for (const double dropout : {0.0, 0.4})
    for (const bool first : {false, true})
      for (const bool transposed : {false, true}) {
        CAPTURE(dropout, first, transposed);
        Layer layer(transposed);
        const auto x = numbers(6, {kRows, kIn}), gradient = numbers(7, {kRows, kOut});
        const auto ready = with_lengths(layer.linear(dropout, first));
        const auto y = product(x, ready);
        CHECK(times(gradient, product(x, ready)) == Approx(times(input_gradient(gradient, ready), x)));
        weight_gradients(gradient, x, ready);
        for (auto* each : {&layer.a, &layer.b, &layer.m}) {
          CAPTURE(each->name);
          const auto before = each->value, step = numbers(8, each->shape);
          each->value = before + step;
          auto moved = ready;
          for (auto& term : moved.adapters) term.factors = layer.m.value / term.lengths;
          CHECK(times(gradient, product(x, moved) - y) == Approx(times(each->grad, step)).margin(1e-10));
          each->value = before;
        }
      }
}

TEST_CASE("a DoRA layer whose magnitudes equal its row norms is a plain LoRA layer", "[ops]") {
  Layer layer;
  layer.m.value = with_lengths(layer.linear()).adapters.front().lengths;
  auto plain = layer.linear();
  plain.adapters.front().magnitude = nullptr;
  const auto x = numbers(6, {kRows, kIn});
  CHECK(at::allclose(linear(x, layer.linear()), linear(x, plain), 0, kTolerance));
}

}  // namespace automodel::ops
