// The output head fused with its loss against separate operations: the loss, and the gradients of input and parameters.
#include "ops/linear_cross_entropy.h"

#include <cmath>
#include <memory>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>

#include "ops/against_autograd.h"
#include "ops/cross_entropy.h"
#include "rounding.h"
#include "torch_catch.h"

namespace automodel::ops {
namespace {

constexpr std::int64_t kTokens = 22, kWidth = 24, kVocabulary = 53;

struct Head {
  Parameter weight, bias, a, b;
  Linear layer = {};

  Head(at::ScalarType type, at::ScalarType gradient, bool biased, bool adapted)
      : weight(make({kVocabulary, kWidth}, type)),
        bias(make({kVocabulary}, type)),
        a(make({3, kWidth}, type)),
        b(make({kVocabulary, 3}, type)) {
    for (auto* each : {&weight, &bias, &a, &b}) each->grad = each->grad.to(gradient);
    layer.weights = {&weight};
    if (biased) layer.biases = {&bias};
    if (adapted) {
      layer.adapters = {{.a = &a, .b = &b, .scale = 0.5, .dropout = 0.3, .features = {{0, kWidth}}, .width = kWidth}};
      layer.adapters[0].dropout_first = true;
      auto draw = std::make_shared<DropoutDraw>();
      draw->seed = 3;
      draw->tokens.resize(kTokens);
      std::iota(draw->tokens.begin(), draw->tokens.end(), 5);
      layer.draw = std::move(draw);
    }
  }
  std::vector<Parameter*> all() {
    std::vector<Parameter*> out = {&weight};
    if (!layer.biases.empty()) out.push_back(&bias);
    if (!layer.adapters.empty()) out.insert(out.end(), {&a, &b});
    return out;
  }
  void begin() {
    for (auto* each : {&weight, &bias, &a, &b}) each->fresh = true;
  }
};

struct Results {
  double loss;
  std::vector<at::Tensor> gradients;  ///< of x, then of the parameters
};

/// Two consecutive microbatches. `joined`: head and loss are one fused operation.
Results results(Head& head, const at::Tensor& x, const at::Tensor& labels, const HeadLoss& how, bool joined) {
  head.begin();
  Results out{0, {}};
  std::vector<at::Tensor> dx;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    const auto in = leaf((x * (1 + microbatch)).to(x.scalar_type()));
    at::Tensor loss;
    if (joined) {
      loss = linear_cross_entropy(in, head.layer, labels, how);
    } else {
      auto logits = linear(in, head.layer);
      if (how.logit_scale != 1) logits = logits * how.logit_scale;
      for (const double cap : how.caps) logits = at::tanh(logits / cap) * cap;
      if (how.output) logits = logits.to(*how.output);
      loss = cross_entropy(logits, labels, how.scale, how.ignore);
    }
    out.loss += loss.item<double>();
    run_backward(Origin(loss), at::ones({}, at::kDouble) * how.seed.value);
    dx.push_back(in.grad());
  }
  out.gradients.push_back(at::stack(dx));
  for (const auto* each : head.all()) out.gradients.push_back(each->grad.clone());
  return out;
}

/// `type`: of the computation. Sums run over tokens or over the vocabulary; 16-bit gradients of logits are rounded
/// alike in both variants, those of weights after each microbatch.
void check_equal(const Results& mine, const Results& apart, at::ScalarType type) {
  CHECK(std::abs(mine.loss - apart.loss) <=
        test::rounding(type, std::abs(apart.loss), at::isReducedFloatingType(type) ? 1 : kVocabulary, 2));
  for (std::size_t i = 0; i < mine.gradients.size(); ++i) {
    INFO("gradient " << i);
    const auto expected = apart.gradients[i].to(at::kDouble);
    const double scale = expected.abs().max().item<double>();
    const double away = (mine.gradients[i].to(at::kDouble) - expected).abs().max().item<double>();
    CHECK(scale > 0);
    CHECK(away <= test::rounding(type, scale, kVocabulary, 2));
  }
}

at::Tensor some_labels() {
  auto labels = at::randint(0, kVocabulary, {2, kTokens / 2}, at::kLong);
  labels[0][1] = -100;
  labels[1][kTokens / 2 - 1] = -100;
  return labels;
}

}  // namespace

TEST_CASE("the fused output head and loss equal the separate operations for any chunk length", "[ops]") {
  const auto labels = some_labels();
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const std::int64_t rows : {1, 4, 5, 22, 100})
      for (const int kind : {0, 1, 2, 3}) {
        Head head(type, at::isReducedFloatingType(type) ? at::kFloat : type, kind == 1, kind == 2);
        // Without chunks, 16-bit weight gradients are then not rounded before they are added either.
        for (auto* each : head.all()) each->fused_accumulation = true;
        const auto x = at::randn({2, kTokens / 2, kWidth}, at::TensorOptions().dtype(type));
        HeadLoss how{.scale = 0.05, .seed = kind == 0 ? 64.0 : 1.0, .rows = rows};
        if (kind == 3) {
          how.logit_scale = 0.5;
          how.caps = {3.0, 2.0};
        }
        INFO(type << ", " << rows << " rows, kind " << kind);
        check_equal(results(head, x, labels, how, true), results(head, x, labels, how, false), type);
      }
}

TEST_CASE("the fused loss accumulates 16-bit weight gradients over chunks in float32", "[ops]") {
  const auto labels = some_labels();
  Head head(at::kBFloat16, at::kBFloat16, true, false);
  const auto x = at::randn({2, kTokens / 2, kWidth}).to(at::kBFloat16);
  const auto chunked = results(head, x, labels, {.scale = 1, .rows = 1}, true).gradients[1].to(at::kDouble);
  const auto whole = results(head, x, labels, {.scale = 1, .rows = kTokens}, true).gradients[1].to(at::kDouble);
  for (auto* each : head.all()) each->grad = each->grad.to(at::kFloat);
  const auto wide = results(head, x, labels, {.scale = 1, .rows = kTokens}, true).gradients[1].to(at::kDouble);
  // Both are rounded once per microbatch; 16-bit sums would be rounded once per token.
  const double once = (whole - wide).norm().item<double>();
  CHECK(once > 0);
  CHECK((chunked - wide).norm().item<double>() < 1.5 * once);
}

TEST_CASE("the fused loss casts logits to the output type before the loss", "[ops]") {
  const auto labels = some_labels();
  Head head(at::kFloat, at::kFloat, false, false);
  const auto x = at::randn({2, kTokens / 2, kWidth});
  const HeadLoss how{.scale = 0.1, .rows = 7, .output = at::kBFloat16};
  check_equal(results(head, x, labels, how, true), results(head, x, labels, how, false), at::kBFloat16);
}

TEST_CASE("each shard of the vocabulary gives the full loss and its part of the input gradient", "[ops]") {
  const auto labels = some_labels();
  const auto flat = labels.reshape({-1});
  for (const auto type : {at::kDouble, at::kFloat})
    for (const bool capped : {false, true}) {
      Head head(type, type, false, false);
      const auto x = at::randn({2, kTokens / 2, kWidth}, at::TensorOptions().dtype(type));
      HeadLoss how{.scale = 0.05, .rows = 8};
      if (capped) how.caps = {2.0};
      const auto whole = results(head, x, labels, how, true);
      // Three shards of 18 rows, the last with one row of padding.
      constexpr std::int64_t kPart = 18;
      std::vector<Parameter> parts;
      const auto filled = at::cat({head.weight.value, at::ones({3 * kPart - kVocabulary, kWidth}, x.options())});
      for (int i = 0; i < 3; ++i) {
        parts.push_back(make({kPart, kWidth}, type));
        parts.back().value = filled.narrow(0, kPart * i, kPart);
      }
      at::Tensor sum;
      for (int i = 0; i < 3; ++i) {
        auto mine = how;
        mine.first = kPart * i;
        mine.columns = std::min(kPart, kVocabulary - mine.first);
        std::int64_t begin = 0;  // of the next chunk; the statistics of the other shards come from their logits
        mine.gather = [&](const at::Tensor& here) {
          std::vector<at::Tensor> all;
          for (int j = 0; j < 3; ++j) {
            auto logits = at::linear(x.reshape({-1, kWidth}).narrow(0, begin, here.size(0)), parts[j].value);
            if (capped) logits = at::tanh(logits / 2.0) * 2.0;
            all.push_back(logit_statistics(logits, flat.narrow(0, begin, here.size(0)), kPart * j,
                                           std::min(kPart, kVocabulary - kPart * j)));
          }
          CHECK(distance(here, all[static_cast<std::size_t>(i)]) < tolerance(type));
          begin += here.size(0);
          return at::stack(all);
        };
        const auto in = leaf(x.clone());
        const auto loss = linear_cross_entropy(in, {.weights = {&parts[static_cast<std::size_t>(i)]}}, labels, mine);
        CHECK(std::abs(loss.item<double>() * 1 - linear_cross_entropy(x, head.layer, labels, how).item<double>()) <
              tolerance(type) * 10);
        run_backward(Origin(loss), at::ones({}, at::kDouble));
        sum = sum.defined() ? sum + in.grad() : in.grad();
        const auto& gradient = parts[static_cast<std::size_t>(i)].grad;
        CHECK(gradient.narrow(0, mine.columns, kPart - mine.columns).count_nonzero().item<std::int64_t>() == 0);
      }
      CHECK(distance(sum, whole.gradients[0][0]) < tolerance(type));
    }
}

TEST_CASE("without a graph the fused loss leaves weight gradients untouched", "[ops]") {
  const auto labels = some_labels();
  Head head(at::kFloat, at::kFloat, false, false);
  const auto before = head.weight.grad.clone();
  const auto x = at::randn({2, kTokens / 2, kWidth});
  const NoGraph guard;
  const auto loss = linear_cross_entropy(x, head.layer, labels, {.scale = 0.1, .rows = 6});
  CHECK(std::abs(loss.item<double>() - cross_entropy(linear(x, head.layer), labels, 0.1).item<double>()) < 1e-5);
  CHECK(head.weight.grad.equal(before));
  CHECK(head.weight.fresh);
}

}  // namespace automodel::ops
