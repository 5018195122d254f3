// Adapters of several weights that share an input, against plain matrices.
#include <memory>
#include <optional>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros_like.h>

#include "against_autograd.h"
#include "ops/linear.h"

namespace automodel::ops {
namespace {

constexpr std::int64_t kIn = 8;
const std::vector<std::int64_t> kOut = {6, 5, 7}, kRanks = {3, 1, 2};

/// Three weights of one input. `adjacent`: their A's, and those's gradients, lie side by side in memory.
struct Layer {
  Layer(at::ScalarType type, bool adjacent, const std::vector<bool>& adapted, const std::vector<double>& scales) {
    const auto whole = make({3 + 1 + 2, kIn}, type);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < kOut.size(); ++i) {
      weights.push_back(make({kOut[i], kIn}, type));
      a.push_back(make({kRanks[i], kIn}, type));
      b.push_back(make({kOut[i], kRanks[i]}, type));
      if (!adapted[i]) continue;
      if (adjacent) {
        a[i].value = whole.value.narrow(0, row, kRanks[i]);
        a[i].grad = whole.grad.narrow(0, row, kRanks[i]);
        row += kRanks[i];
      }
    }
    for (std::size_t i = 0; i < kOut.size(); ++i) {
      linear.weights.push_back(&weights[i]);
      linear.adapters.push_back(adapted[i] ? LowRank{.a = &a[i], .b = &b[i], .scale = scales[i]} : LowRank{});
    }
  }
  std::vector<Parameter*> parameters() {
    std::vector<Parameter*> out;
    for (std::size_t i = 0; i < kOut.size(); ++i) {
      out.push_back(&weights[i]);
      if (linear.adapters[i]) out.insert(out.end(), {&a[i], &b[i]});
    }
    return out;
  }
  /// The result from the parameters() as plain matrices.
  at::Tensor plain(const at::Tensor& x, const std::vector<at::Tensor>& values) const {
    std::vector<at::Tensor> parts;
    auto next = values.begin();
    for (const auto& term : linear.adapters) {
      parts.push_back(at::linear(x, *next++));
      if (!term) continue;
      const auto low = at::linear(x, *next++);
      parts.back() = parts.back() + term.scale * at::linear(low, *next++);
    }
    return at::cat(parts, -1);
  }
  std::vector<Parameter> weights, a, b;
  Linear linear;
};

}  // namespace

TEST_CASE("adapters of weights with one input are those of plain matrices, stacked or not", "[ops]") {
  for (const auto type : kTypes)
    for (const bool adjacent : {true, false})
      for (const auto& scales : {std::vector{0.5, 0.5, 0.5}, {0.5, 0.5, 2.0}, {0.5, 3.0, 2.0}})
        for (const auto& adapted : {std::vector{true, true, true}, {true, false, true}, {false, true, false}})
          for (const bool input_first : {true, false})
            for (const bool later : {false, true}) {
              CAPTURE(type, adjacent, scales, adapted, input_first, later);
              Layer layer(type, adjacent, adapted, scales);
              auto x = input({2, 3, kIn}, type);
              WeightGradients queue;
              compare(
                  type, {x}, layer.parameters(), [&] { return linear(x, layer.linear); },
                  [&](const auto& in, const auto& values) { return layer.plain(in[0], values); });
              // A second microbatch adds to the first one's gradients, also from its parts: as between communication.
              const auto flat = x.detach().view({6, kIn});
              const auto gradient = at::randn({6, layer.linear.outputs()}, flat.options());
              const auto once = [&](bool fresh) {
                for (auto* each : layer.parameters()) each->fresh = fresh;
                const WeightGradients::Scope scope(later ? &queue : nullptr);
                at::Tensor low;
                if (input_first) input_gradient(gradient, layer.linear, &low);
                weight_gradients(gradient, flat, layer.linear, low);
                queue.drain();
              };
              once(true);
              std::vector<at::Tensor> first;
              for (auto* each : layer.parameters()) first.push_back(each->grad.clone());
              once(false);
              for (std::size_t i = 0; i < first.size(); ++i)
                CHECK(distance(layer.parameters()[i]->grad, first[i] * 2) < tolerance(type));
            }
}

TEST_CASE("adapters multiply in the type of autocast, and drop each term's own features", "[ops]") {
  Layer layer(at::kFloat, true, {true, true, true}, {0.5, 0.5, 0.5});
  auto x = input({6, kIn}, at::kFloat);
  const auto exact = linear(x, layer.linear).detach();
  for (auto* list : {&layer.weights, &layer.a, &layer.b})
    for (auto& each : *list) each.matmul_type = at::kBFloat16;
  CHECK(distance(linear(x, layer.linear).detach(), exact) < 3e-2);
  for (auto* list : {&layer.weights, &layer.a, &layer.b})
    for (auto& each : *list) each.matmul_type.reset();

  // Dropout of x draws for each weight apart: stacked products would give all the same.
  auto draw = std::make_shared<DropoutDraw>();
  for (std::int64_t i = 0; i < 6; ++i) draw->tokens.push_back(i);
  layer.linear.draw = draw;
  for (std::size_t i = 0; i < kOut.size(); ++i) {
    layer.a[i].name = "a" + std::to_string(i);
    auto& term = layer.linear.adapters[i];
    term.dropout = 0.4, term.dropout_first = true, term.features = {{0, kIn}}, term.width = kIn;
  }
  const auto whole = linear(x, layer.linear).detach();
  const auto gradient = at::randn(whole.sizes(), whole.options());
  const auto dx = input_gradient(gradient, layer.linear);
  for (auto* each : layer.parameters()) each->fresh = true;
  weight_gradients(gradient, x.detach(), layer.linear);
  auto sum = at::zeros_like(dx);
  std::int64_t column = 0;
  for (std::size_t i = 0; i < kOut.size(); ++i) {
    CAPTURE(i);
    const auto mine = gradient.narrow(1, column, kOut[i]);
    const auto grad = layer.a[i].grad.clone();
    const Linear alone{
        .weights = {&layer.weights[i]}, .adapters = {layer.linear.adapters[i]}, .draw = layer.linear.draw};
    CHECK(distance(linear(x, alone).detach(), whole.narrow(1, column, kOut[i])) < tolerance(at::kFloat));
    sum.add_(input_gradient(mine, alone));
    layer.a[i].fresh = true;
    weight_gradients(mine, x.detach(), alone);
    CHECK(distance(layer.a[i].grad, grad) < tolerance(at::kFloat));
    column += kOut[i];
  }
  CHECK(distance(sum, dx) < tolerance(at::kFloat));
}

}  // namespace automodel::ops
