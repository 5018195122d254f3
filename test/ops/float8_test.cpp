// Matmuls of float8 operands: rounding, scales, and the three matmuls of each recipe against ATen's operations.
#include "ops/float8.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "golden_file.h"
#include "ops/against_autograd.h"
#include "ops/linear.h"
#include "rounding.h"
#include "torch_catch.h"

namespace automodel::ops {
namespace {

/// All values of a type with `exponent` exponent bits and `mantissa` mantissa bits, from their definition.
std::vector<double> grid(int exponent, int mantissa, double largest) {
  std::vector<double> out;
  const int bias = (1 << (exponent - 1)) - 1;
  for (int e = 0; e < 1 << exponent; ++e)
    for (int m = 0; m < 1 << mantissa; ++m) {
      const double fraction = std::ldexp(m, -mantissa);
      const double value = e == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, e - bias);
      if (value <= largest) out.push_back(value);
    }
  return out;
}

/// The value of the grid nearest to x; ties go to the value with an even last bit, which has an even index.
double nearest(const std::vector<double>& grid, double x) {
  const double size = std::abs(x);
  std::size_t best = 0;
  for (std::size_t i = 1; i < grid.size(); ++i) {
    const double away = std::abs(grid[i] - size), before = std::abs(grid[best] - size);
    if (away < before || (away == before && i % 2 == 0)) best = i;
  }
  return std::copysign(grid[best], x);
}

/// x quantized with the recipe's scale and dequantized in float32, independently of the tested code.
at::Tensor rounded(const at::Tensor& x, at::ScalarType type, int axis, bool power) {
  const double largest = type == at::kFloat8_e5m2 ? 57344.0 : 448.0;
  const auto top = axis < 0 ? x.abs().max() : x.abs().amax(axis, true);
  auto scale = largest / top.to(at::kDouble).clamp_min(1e-12);
  if (power) scale = scale.log2().floor().exp2();
  scale = scale.to(at::kFloat);
  return (x.to(at::kFloat) * scale).clamp(-largest, largest).to(type).to(at::kFloat) / scale;
}

struct Case {
  plan::Float8Recipe recipe;
  at::ScalarType gradient;
  bool by_rows, wide_weight;
};
const std::vector<Case> kCases = {{plan::Float8Recipe::kTensorwise, at::kFloat8_e5m2, false, false},
                                  {plan::Float8Recipe::kRowwise, at::kFloat8_e4m3fn, true, false},
                                  {plan::Float8Recipe::kRowwiseWideWeight, at::kFloat8_e4m3fn, true, true}};

}  // namespace

TEST_CASE("conversion to float8 rounds to the nearest value, ties to even", "[ops]") {
  struct Type {
    at::ScalarType type;
    std::vector<double> numbers;
    double largest;
  };
  for (const auto& [type, numbers, largest] :
       {Type{at::kFloat8_e4m3fn, grid(4, 3, 448), 448}, Type{at::kFloat8_e5m2, grid(5, 2, 57344), 57344}}) {
    // The largest magnitude is that of the type, so that the scale is 1.
    auto x = at::randn({3000}, at::kFloat).mul(at::randn({3000}, at::kFloat).mul(4).exp2()).clamp(-largest, largest);
    x = at::cat({x, at::zeros({1}), at::zeros({1}) + largest});
    // Midpoints of neighbours as well.
    std::vector<float> halves;
    for (std::size_t i = 0; i + 1 < numbers.size(); ++i)
      halves.push_back(static_cast<float>((numbers[i] + numbers[i + 1]) / 2));
    for (const float each : halves) x = at::cat({x, at::zeros({1}) - each});
    const auto made = to_float8(x.view({1, -1}), type, ScaleOf::kMatrix, false);
    CHECK(made.scale.item<double>() == 1.0);
    const auto values = made.data.to(at::kFloat).view({-1});
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double given = x[i].item<double>();
      if (values[i].item<double>() != nearest(numbers, given)) {
        INFO(type << " " << given);
        CHECK(values[i].item<double>() == nearest(numbers, given));
      }
    }
  }
}

TEST_CASE("float8 scales map the largest magnitude to the largest value of the type", "[ops]") {
  const auto x = at::randn({6, 10}, at::kFloat) * 3;
  for (const auto type : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    const double largest = type == at::kFloat8_e5m2 ? 57344.0 : 448.0;
    const auto one = to_float8(x, type, ScaleOf::kMatrix, false);
    CHECK(one.data.to(at::kFloat).abs().max().item<double>() == largest);
    const auto rows = to_float8(x, type, ScaleOf::kRow, false);
    CHECK(rows.scale.sizes() == at::IntArrayRef({6, 1}));
    CHECK(rows.data.to(at::kFloat).abs().amax(1).eq(largest).all().item<bool>());
    const auto columns = to_float8(x, type, ScaleOf::kColumn, false);
    CHECK(columns.scale.sizes() == at::IntArrayRef({1, 10}));
    const auto power = to_float8(x, type, ScaleOf::kRow, true);
    CHECK(power.scale.log2().eq(power.scale.log2().round()).all().item<bool>());
    CHECK(power.scale.le(rows.scale).all().item<bool>());
    CHECK(power.scale.mul(2).gt(rows.scale).all().item<bool>());
  }
  const auto nothing = to_float8(at::zeros({2, 3}), at::kFloat8_e4m3fn, ScaleOf::kRow, true);
  CHECK(nothing.data.to(at::kFloat).eq(0).all().item<bool>());
  CHECK(nothing.scale.isfinite().all().item<bool>());
}

TEST_CASE("each float8 recipe gives the expected outputs and gradients of a fused linear layer", "[ops]") {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto& [recipe, gradient_type, by_rows, wide_weight] : kCases)
      for (const bool mixed : {false, true}) {
        INFO(type << " recipe " << static_cast<int>(recipe) << (mixed ? ", one weight in its own type" : ""));
        auto a = make({32, 48}, type), b = make({16, 48}, type);
        for (auto* each : {&a, &b}) each->grad = each->grad.to(at::kFloat), each->fused_accumulation = true;
        a.float8 = plan::Float8Plan{.recipe = recipe};
        if (!mixed) b.float8 = a.float8;
        const auto x = input({2, 10, 48}, type);
        const auto y = linear(x, {&a, &b});
        const auto gradient = at::randn(y.sizes()).to(type);
        run_backward(Origin(y), gradient);
        const auto flat = x.detach().view({20, 48});
        const auto near = [&](const at::Tensor& mine, const at::Tensor& theirs, double terms) {
          const double scale = theirs.abs().max().item<double>();
          CHECK((mine.to(at::kFloat) - theirs).abs().max().item<double>() <= test::rounding(type, scale, terms, 1));
        };
        at::Tensor dx = at::zeros({20, 48});
        std::int64_t column = 0;
        for (auto* each : {&a, &b}) {
          const bool low = each->float8.has_value();
          const auto cast = [&](const at::Tensor& of, at::ScalarType to, int axis) {
            return low ? rounded(of, to, by_rows ? axis : -1, by_rows) : of.to(at::kFloat);
          };
          const auto rows = each->shape[0];
          const auto mine = gradient.view({20, 48}).narrow(1, column, rows);
          const auto e4m3 = at::kFloat8_e4m3fn;
          near(y.detach().view({20, 48}).narrow(1, column, rows),
               at::matmul(cast(flat, e4m3, 1), cast(each->value, e4m3, 1).t()), 48);
          dx += at::matmul(cast(mine, gradient_type, 1),
                           low && wide_weight ? rounded(each->value, e4m3, -1, true) : cast(each->value, e4m3, 0));
          const auto left = low && wide_weight ? mine.to(at::kFloat) : cast(mine, gradient_type, 0);
          const auto right = low && wide_weight ? flat.to(at::kFloat) : cast(flat, e4m3, 0);
          near(each->grad, at::matmul(left.t(), right), 20);
          column += rows;
        }
        near(x.grad().view({20, 48}), dx, 48);
      }
}

TEST_CASE("kept 8-bit weights are used until they are cleared", "[ops]") {
  for (const auto& [recipe, gradient_type, by_rows, wide_weight] : kCases) {
    INFO("recipe " << static_cast<int>(recipe));
    auto kept = make({32, 48}, at::kBFloat16), fresh = make({32, 48}, at::kBFloat16);
    fresh.value.copy_(kept.value);
    for (auto* each : {&kept, &fresh}) each->float8 = plan::Float8Plan{.recipe = recipe};
    kept.float8_forms = std::make_shared<Float8Weight>();
    const auto x = input({6, 48}, at::kBFloat16);
    const auto results = [&](Parameter& weight) {
      const auto mine = x.detach().clone().requires_grad_();
      const auto y = linear(mine, {&weight});
      run_backward(Origin(y), at::ones_like(y));
      return std::pair(y.detach(), mine.grad());
    };
    const auto same = [](const auto& a, const auto& b) { return a.first.equal(b.first) && a.second.equal(b.second); };
    const auto before = results(kept);
    CHECK(same(before, results(fresh)));
    CHECK(same(before, results(kept)));
    kept.value.mul_(3), fresh.value.mul_(3);
    CHECK(same(before, results(kept)));
    *kept.float8_forms = {};
    CHECK(same(results(kept), results(fresh)));
  }
}

TEST_CASE("outputs and gradients of a float8 linear layer equal those of torchao", "[ops][golden]") {
  const auto recorded = golden::load("torch/float8.json");
  const auto matrix = [](const nlohmann::json& values, std::int64_t columns) {
    const auto numbers = values.get<std::vector<float>>();
    return at::tensor(numbers).view({-1, columns});
  };
  const auto weight = matrix(recorded["w"], 16), x = matrix(recorded["x"], 16), gradient = matrix(recorded["dy"], 8);
  const std::map<std::string, plan::Float8Recipe> recipes = {
      {"tensorwise", plan::Float8Recipe::kTensorwise},
      {"rowwise", plan::Float8Recipe::kRowwise},
      {"rowwise_with_gw_hp", plan::Float8Recipe::kRowwiseWideWeight}};
  int rows = 0;
  for (const auto& row : recorded["rows"]) {
    INFO(row["recipe"] << (row["bfloat16"] ? " bfloat16" : " float32"));
    const auto type = row["bfloat16"] ? at::kBFloat16 : at::kFloat;
    auto w = make({8, 16}, type);
    w.value = weight.to(type);
    w.float8 = plan::Float8Plan{.recipe = recipes.at(row["recipe"])};
    const auto in = leaf(x.to(type));
    const auto y = linear(in, {&w});
    run_backward(Origin(y), gradient.to(type));
    // Both sum exact products of float8 values, in different orders, and round once to the type.
    const auto near = [&](const at::Tensor& mine, const nlohmann::json& theirs, double terms) {
      const auto other = matrix(theirs, mine.size(1));
      const double scale = other.abs().max().item<double>();
      const double sums = test::rounding(at::kFloat, scale, terms, 1), last = 2 * test::roundoff(type) * scale;
      CHECK((mine.to(at::kFloat) - other).abs().max().item<double>() <= sums + last);
    };
    near(y.detach(), row["y"], 16);
    near(in.grad(), row["dx"], 8);
    near(w.grad, row["dw"], 6);
    ++rows;
  }
  CHECK(rows == 6);
}

TEST_CASE("float8 matmuls differ from float32 matmuls by the expected rounding error", "[ops]") {
  auto low = make({32, 48}, at::kFloat);
  auto wide = low;
  low.float8 = plan::Float8Plan{};
  const auto x = at::randn({16, 48});
  const NoGraph guard;
  const auto a = linear(x, {&low}), b = linear(x, {&wide});
  const double away = (a - b).norm().item<double>() / b.norm().item<double>();
  CHECK(away > 0.005);  // a 3-bit mantissa has a relative error of up to 6 %
  CHECK(away < 0.06);
}

}  // namespace automodel::ops
