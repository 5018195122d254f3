// Every operation against the same thing written with ATen's own operations and autograd: values and gradients.
#include <functional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "ops/activation.h"
#include "ops/adam.h"
#include "ops/against_autograd.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/graph.h"
#include "ops/grouped_linear.h"
#include "ops/host_matmul.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/row_copies.h"
#include "torch_catch.h"

namespace automodel::ops {
namespace {

at::Tensor rms(const at::Tensor& x, const at::Tensor& w, double eps, double offset) {
  return x * at::rsqrt(x.square().mean(-1, true) + eps) * (w + offset);
}

std::pair<at::Tensor, at::Tensor> angles(std::int64_t positions, std::int64_t half, at::ScalarType type) {
  const auto t = at::rand({positions, half}, at::TensorOptions().dtype(type)) * 6;
  return {t.cos(), t.sin()};
}
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions) {
  const auto half = x.size(-1) / 2;
  const auto c = cos.index_select(0, positions.reshape({-1})).view({x.size(0), x.size(1), 1, half});
  const auto s = sin.index_select(0, positions.reshape({-1})).view({x.size(0), x.size(1), 1, half});
  const auto a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a * c - b * s, b * c + a * s}, -1);
}
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                           double scale, double softcap = 0, const at::Tensor& sinks = {}) {
  const auto m = q.size(2) / k.size(2);
  auto scores = at::matmul(q.transpose(1, 2), k.repeat_interleave(m, 2).permute({0, 2, 3, 1})) * scale;
  if (softcap > 0) scores = at::tanh(scores / softcap) * softcap;
  scores = scores.masked_fill(mask.logical_not(), -1e30);
  at::Tensor p;
  if (sinks.defined())
    p = at::softmax(at::cat({scores, sinks.view({1, -1, 1, 1}).expand({q.size(0), q.size(2), q.size(1), 1})}, -1), -1)
            .narrow(-1, 0, q.size(1));
  else
    p = at::softmax(scores, -1);
  return at::matmul(p, v.repeat_interleave(m, 2).transpose(1, 2)).transpose(1, 2);
}
at::Tensor causal_mask(std::int64_t n) {
  const auto i = at::arange(n);
  return i.unsqueeze(0).le(i.unsqueeze(1));
}

}  // namespace

TEST_CASE("fused linear layers match ATen with separate weights, adjacent weights and biases", "[ops]") {
  for (const auto type : kTypes) {
    auto x = input({2, 3, 8}, type);
    auto a = make({5, 8}, type), b = make({3, 8}, type), bias = make({5}, type);
    compare(
        type, {x}, {&a, &b, &bias},
        [&] {
          return linear(x, {&a, &b}, {&bias, nullptr});
        },
        [](const auto& in, const auto& w) {
          return at::cat({at::linear(in[0], w[0], w[2]), at::linear(in[0], w[1])}, -1);
        });
    // adjacent views of one buffer
    auto flat = at::randn({8 * 8}, at::TensorOptions().dtype(type)),
         grads = at::randn({8 * 8}, at::TensorOptions().dtype(type));
    Parameter c{.name = "c",
                .shape = {5, 8},
                .value = flat.narrow(0, 0, 40).view({5, 8}),
                .grad = grads.narrow(0, 0, 40).view({5, 8})};
    Parameter d{.name = "d",
                .shape = {3, 8},
                .value = flat.narrow(0, 40, 24).view({3, 8}),
                .grad = grads.narrow(0, 40, 24).view({3, 8})};
    REQUIRE(joined_value({&c, &d}).defined());
    REQUIRE_FALSE(joined_value({&d, &c}).defined());
    auto z = input({4, 8}, type);
    compare(
        type, {z}, {&c, &d},
        [&] {
          return linear(z, {&c, &d});
        },
        [](const auto& in, const auto& w) {
          return at::cat({at::linear(in[0], w[0]), at::linear(in[0], w[1])}, -1);
        });
  }
}

TEST_CASE("weight gradients accumulate over microbatches, and the first one overwrites old values", "[ops]") {
  auto w = make({3, 4}, at::kDouble);
  auto expected = at::zeros({3, 4}, at::kDouble);
  for (int i = 0; i < 3; ++i) {
    auto x = input({5, 4}, at::kDouble);
    const auto y = linear(x, {&w});
    const auto g = at::randn({5, 3}, at::kDouble);
    run_backward(Origin(y), g);
    expected += at::matmul(g.t(), x.detach());
  }
  CHECK(distance(w.grad, expected) < 1e-12);
}

TEST_CASE("a queue defers the weight gradient until it is drained", "[ops]") {
  auto w = make({3, 4}, at::kDouble);
  auto x = input({5, 4}, at::kDouble);
  const auto y = linear(x, {&w});
  const auto g = at::randn({5, 3}, at::kDouble);
  WeightGradients queue;
  {
    WeightGradients::Scope scope(&queue);
    run_backward(Origin(y), g);
  }
  CHECK(distance(x.grad(), at::matmul(g, w.value)) < 1e-12);
  CHECK(w.fresh);
  CHECK_FALSE(queue.empty());
  CHECK(queue.bytes() == 8 * (15 + 20));
  queue.drain();
  CHECK_FALSE(w.fresh);
  CHECK(distance(w.grad, at::matmul(g.t(), x.detach())) < 1e-12);
}

TEST_CASE("bfloat16 operands accumulate into a float32 gradient", "[ops]") {
  auto w = make({3, 4}, at::kBFloat16);
  w.grad = at::zeros({3, 4}, at::kFloat);
  auto x = input({5, 4}, at::kBFloat16);
  const auto g = at::randn({5, 3}).to(at::kBFloat16);
  run_backward(Origin(linear(x, {&w})), g);
  CHECK(distance(w.grad, at::matmul(g.to(at::kFloat).t(), x.detach().to(at::kFloat))) < 2e-2);
}

TEST_CASE("RMSNorm matches ATen with an offset, with a residual addition and for odd widths", "[ops]") {
  for (const auto type : kTypes)
    for (const double offset : {0.0, 1.0})
      for (const std::int64_t width : {1, 7, 64}) {
        auto x = input({3, 5, width}, type), d = input({3, 5, width}, type);
        auto w = make({width}, type), v = make({width}, type);
        compare(
            type, {x}, {&w}, [&] { return rms_norm(x, w, 1e-5, offset); },
            [&](const auto& in, const auto& p) { return rms(in[0], p[0], 1e-5, offset); });
        auto x2 = input({3, 5, width}, type);
        compare(
            type, {x2, d}, {&v},
            [&] {
              const auto [sum, y] = add_rms_norm(x2, d, v, 1e-5, offset);
              return sum * 2 + y;
            },
            [&](const auto& in, const auto& p) {
              const auto sum = in[0] + in[1];
              return sum * 2 + rms(sum, p[0], 1e-5, offset);
            });
      }
}

TEST_CASE("RMSNorm in bfloat16 matches float32 rounded once", "[ops]") {
  auto x = input({4, 32}, at::kBFloat16);
  auto w = make({32}, at::kBFloat16);
  w.grad = at::zeros({32}, at::kFloat);
  const auto y = rms_norm(x, w, 1e-5);
  CHECK(distance(y, rms(x.detach().to(at::kFloat), w.value.to(at::kFloat), 1e-5, 0).to(at::kBFloat16)) < 1e-2);
}

TEST_CASE("LayerNorm matches ATen", "[ops]") {
  for (const auto type : kTypes) {
    auto x = input({3, 16}, type);
    auto w = make({16}, type), b = make({16}, type);
    compare(
        type, {x}, {&w, &b}, [&] { return layer_norm(x, &w, &b, 1e-5); },
        [](const auto& in, const auto& p) { return at::layer_norm(in[0], {16}, p[0], p[1], 1e-5); });
  }
}

TEST_CASE("gated and plain activations match ATen", "[ops]") {
  for (const auto type : kTypes)
    for (const auto gate : {Gate::kSilu, Gate::kGeluTanh, Gate::kGelu}) {
      const auto act = [gate](const at::Tensor& t) {
        return gate == Gate::kSilu ? at::silu(t) : at::gelu(t, gate == Gate::kGelu ? "none" : "tanh");
      };
      auto x = input({3, 2, 22}, type);
      compare(
          type, {x}, {}, [&] { return gated(x, gate); },
          [&](const auto& in, const auto&) { return act(in[0].narrow(-1, 0, 11)) * in[0].narrow(-1, 11, 11); });
      auto z = input({3, 11}, type);
      compare(
          type, {z}, {}, [&] { return activate(z, gate); }, [&](const auto& in, const auto&) { return act(in[0]); });
    }
  const auto big = leaf(at::full({1, 2}, -200.0));
  CHECK(std::abs(gated(big, Gate::kSilu).item<float>()) < 1e-30f);
}

TEST_CASE("an embedding matches ATen, whole and as the sum of its vocabulary shards", "[ops]") {
  const auto ids = at::randint(0, 10, {3, 4}, at::kLong);
  auto table = make({10, 6}, at::kDouble);
  const auto start = anchor(at::kCPU);
  compare(
      at::kDouble, {}, {&table}, [&] { return embedding(ids, table, start); },
      [&](const auto&, const auto& w) { return at::embedding(w[0], ids); });
  auto whole = at::zeros({3, 4, 6}, at::kDouble);
  for (const std::int64_t first : {0, 5}) {
    Parameter shard{.name = "s",
                    .shape = {5, 6},
                    .value = table.value.narrow(0, first, 5).clone(),
                    .grad = at::zeros({5, 6}, at::kDouble)};
    whole += embedding_shard(ids, shard, start, first).detach();
  }
  CHECK(distance(whole, at::embedding(table.value, ids)) < 1e-15);
}

TEST_CASE("RoPE matches the explicit rotation, forward and backward", "[ops]") {
  for (const auto type : kTypes) {
    const auto [cos, sin] = angles(20, 4, type);
    const auto positions = at::randint(0, 20, {2, 5}, at::kLong);
    auto x = input({2, 5, 3, 8}, type);
    compare(
        type, {x}, {}, [&, c = cos, s = sin] { return rope(x, c, s, positions); },
        [&, c = cos, s = sin](const auto& in, const auto&) { return rotated(in[0], c, s, positions); });
  }
}

TEST_CASE("attention matches plain operations with grouped heads, windows, segments, soft caps and sinks", "[ops]") {
  for (const auto type : kTypes) {
    const std::int64_t n = 9;
    const auto segments = at::cat({at::zeros({2, 4}, at::kLong), at::zeros({2, 5}, at::kLong) + 1}, 1);
    const auto same = segments.unsqueeze(2).eq(segments.unsqueeze(1)).unsqueeze(1);
    for (const std::int64_t groups : {4, 2, 1}) {
      auto q = input({2, n, 4, 8}, type), k = input({2, n, groups, 8}, type), v = input({2, n, groups, 8}, type);
      compare(
          type, {q, k, v}, {}, [&] { return attention(q, k, v, {.scale = 0.3}); },
          [&](const auto& in, const auto&) { return plain_attention(in[0], in[1], in[2], causal_mask(n), 0.3); });
      auto q2 = input({2, n, 4, 8}, type), k2 = input({2, n, groups, 8}, type), v2 = input({2, n, groups, 8}, type);
      compare(
          type, {q2, k2, v2}, {},
          [&] { return attention(q2, k2, v2, {.scale = 0.3, .window = 3, .segments = segments}); },
          [&](const auto& in, const auto&) {
            const auto i = at::arange(n);
            const auto near = i.unsqueeze(0).gt(i.unsqueeze(1) - 3);
            return plain_attention(in[0], in[1], in[2], causal_mask(n).logical_and(near).logical_and(same), 0.3);
          });
      auto q3 = input({2, n, 4, 8}, type), k3 = input({2, n, groups, 8}, type), v3 = input({2, n, groups, 6}, type);
      auto sinks = make({4}, type);
      compare(
          type, {q3, k3, v3}, {&sinks},
          [&] { return attention(q3, k3, v3, {.scale = 0.3, .softcap = 2.0, .sinks = &sinks}); },
          [&](const auto& in, const auto& p) {
            return plain_attention(in[0], in[1], in[2], causal_mask(n), 0.3, 2.0, p[0]);
          });
    }
  }
}

TEST_CASE("attention that masks keys takes some queries at a time and matches plain operations", "[ops]") {
  constexpr std::int64_t kTokens = 1500;  // of two rows: more than the 2^21 elements of a mask that exist at once
  const auto places = at::arange(kTokens);
  // Rows whose documents end at different places; a query's list has itself and others, of which some are hidden.
  const auto segments = at::stack({places.ge(400), places.ge(1100)}).to(at::kLong);
  const auto same = segments.unsqueeze(2).eq(segments.unsqueeze(1));
  const auto earlier = causal_mask(kTokens);
  const auto others = at::randint(0, kTokens, {2, kTokens, 30}, at::kLong);
  const auto keys = at::cat({places.view({1, kTokens, 1}).expand({2, kTokens, 1}), others}, 2);
  const auto block_of = at::stack({places.div(7, "floor"), places.div(5, "floor")});
  const auto blocks = block_of.unsqueeze(2).expand({2, kTokens, kTokens}).gather(1, keys);
  const auto listed = [&](const at::Tensor& lists, const at::Tensor& numbers) {
    auto out = at::zeros({2, kTokens, kTokens}, at::kBool);
    for (std::int64_t i = 0; i < lists.size(2); ++i) out |= lists.select(2, i).unsqueeze(2).eq(numbers.unsqueeze(1));
    return out;
  };
  const auto near = places.unsqueeze(0).gt(places.unsqueeze(1) - 300);
  const auto some = listed(keys, places.expand({2, kTokens})), of_blocks = listed(blocks, block_of);
  const ChosenKeys of_keys(keys.to(ChosenKeys::type_for(kTokens)), kTokens);
  const std::vector<std::pair<AttentionOptions, at::Tensor>> cases = {
      {{.chosen = of_keys}, some},
      {{.segments = segments, .chosen = of_keys}, some.logical_and(same)},
      {{.chosen = {blocks, kTokens, block_of}}, of_blocks},
      {{.segments = segments, .chosen = {blocks, kTokens, block_of}}, of_blocks.logical_and(same)},
      {{.mask = some}, some},
      {{.window = 300}, near.expand({2, kTokens, kTokens})},
  };
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (const std::int64_t value_width : {8, 6}) {  // LibTorch's kernel, and plain operations in chunks
      CAPTURE(i, value_width);
      const auto type = at::kDouble;
      auto q = input({2, kTokens, 2, 8}, type), k = input({2, kTokens, 1, 8}, type),
           v = input({2, kTokens, 1, value_width}, type);
      compare(
          type, {q, k, v}, {}, [&] { return attention(q, k, v, cases[i].first); },
          [&](const auto& in, const auto&) {
            return plain_attention(in[0], in[1], in[2], cases[i].second.logical_and(earlier).unsqueeze(1), 1);
          });
    }
}

TEST_CASE("fused RoPE and attention equal the separate operations", "[ops]") {
  for (const auto type : kTypes) {
    const auto [cos, sin] = angles(20, 4, type);
    const auto positions = at::randint(0, 20, {2, 7}, at::kLong);
    auto qkv = leaf(at::randn({2, 7, (4 + 2 * 2) * 8}, at::TensorOptions().dtype(type)));
    compare(
        type, {qkv}, {},
        [&, c = cos, s = sin] {
          const auto copy = qkv * 1;  // its memory is rotated in place
          return rope_attention(copy, {.heads = 4, .groups = 2, .width = 8, .cos = c, .sin = s, .positions = positions},
                                {.scale = 0.4});
        },
        [&, c = cos, s = sin](const auto& in, const auto&) {
          const auto heads = in[0].view({2, 7, 8, 8});
          return plain_attention(rotated(heads.narrow(2, 0, 4), c, s, positions),
                                 rotated(heads.narrow(2, 4, 2), c, s, positions), heads.narrow(2, 6, 2), causal_mask(7),
                                 0.4)
              .reshape({2, 7, 32});
        });
  }
}

TEST_CASE("cross-entropy with a scale and ignored rows matches ATen, forward and backward", "[ops]") {
  for (const auto type : {at::kDouble, at::kFloat}) {
    auto labels = at::randint(0, 33, {2, 6}, at::kLong);
    labels[0][1] = -100;
    labels[1][5] = -100;
    auto x = leaf(at::randn({2, 6, 33}, at::TensorOptions().dtype(type)) * 5);
    const auto reference = leaf(x.detach().clone());
    const auto loss = cross_entropy(x * 1, labels, 0.1);
    const auto expected =
        at::cross_entropy_loss(reference.view({12, 33}), labels.view({12}), {}, at::Reduction::Sum, -100) * 0.1;
    CHECK(std::abs(loss.item<double>() - expected.item<double>()) < tolerance(type) * 10);
    run_backward(Origin(loss), at::ones({}, at::kDouble));
    run_backward(Origin(expected), at::ones({}, at::TensorOptions().dtype(type)));
    CHECK(distance(x.grad(), reference.grad()) < tolerance(type));
  }
  NoGraph guard;
  auto logits = at::randn({3, 5});
  const auto before = logits.clone();
  cross_entropy(logits, at::zeros({3}, at::kLong), 1.0);
  CHECK(logits.equal(before));  // without a graph, logits stay unchanged
}

TEST_CASE("rows copied to places, and summed from them, match ATen, with sums rounded once", "[ops]") {
  const std::int64_t rows = 5, k = 8, width = 3;
  const auto order = at::randperm(rows * k, at::kLong);  // of the copies, row by row
  const RowCopies copies{order.floor_divide(k), permutation(order).places};
  for (const auto type : {at::kDouble, at::kBFloat16}) {
    const double rounding = type == at::kDouble ? 1e-12 : 1.0 / 256;  // one rounding to 8 bits; of eight sums, several
    const auto x = leaf(at::randn({rows, width}).to(type)), wide = leaf(x.detach().to(at::kDouble).clone());
    const auto out = copied_rows(x, copies), expected = wide.index_select(0, copies.source);
    CHECK(distance(out.detach(), expected.detach()) == 0);
    const auto gradient = at::randn(out.sizes()).to(type);
    run_backward(Origin(out), gradient);
    run_backward(Origin(expected), gradient.to(at::kDouble));
    CHECK(distance(x.grad(), wide.grad()) < rounding);

    const auto parts = leaf(at::randn({rows * k, width}).to(type));
    const auto sum = summed_rows(parts, copies, k);
    const auto of_parts =
        at::zeros({rows, width}, at::kDouble).index_add(0, copies.source, parts.detach().to(at::kDouble));
    CHECK(distance(sum.detach(), of_parts) < rounding);
    const auto incoming = at::randn(sum.sizes()).to(type);
    run_backward(Origin(sum), incoming);
    CHECK(distance(parts.grad(), incoming.index_select(0, copies.source)) == 0);

    const auto weights = leaf(at::randn({rows, k}).to(type)), rest = leaf(parts.detach().clone());
    const auto weighted = summed_rows(rest, copies, k, weights);
    const auto exact_rest = leaf(parts.detach().to(at::kDouble)),
               exact_weights = leaf(weights.detach().to(at::kDouble));
    const auto by_row = exact_rest.index_select(0, copies.places).view({rows, k, width});
    const auto exact = (by_row * exact_weights.unsqueeze(2)).sum(1);
    CHECK(distance(weighted.detach(), exact.detach()) < 2 * rounding);
    run_backward(Origin(weighted), incoming);
    run_backward(Origin(exact), incoming.to(at::kDouble));
    CHECK(distance(rest.grad(), exact_rest.grad()) < rounding);
    CHECK(distance(weights.grad(), exact_weights.grad()) < 2 * rounding);

    const auto none = leaf(parts.detach().narrow(0, 0, 0).clone()),
               no_weights = leaf(weights.detach().narrow(0, 0, 0).clone());
    const auto nothing = summed_rows(none, permutation(order.narrow(0, 0, 0)), k, no_weights);
    CHECK(nothing.sizes() == at::IntArrayRef({0, width}));
    run_backward(Origin(nothing), at::zeros_like(nothing.detach()));
    CHECK((none.grad().sizes() == none.sizes() && no_weights.grad().sizes() == no_weights.sizes()));

    const auto moved = copied_rows(copied_rows(parts, permutation(order)), permutation(order).inverse());
    CHECK(distance(moved.detach(), parts.detach()) == 0);
  }
}

TEST_CASE("a parameter used in ATen operations gets its gradient", "[ops]") {
  auto w = make({4}, at::kDouble);
  auto x = input({3, 4}, at::kDouble);
  compare(
      at::kDouble, {x}, {&w}, [&] { return x * use(w, x).square(); },
      [](const auto& in, const auto& p) { return in[0] * p[0].square(); });
}

TEST_CASE("Adam and AdamW steps equal their formulas", "[ops]") {
  for (const bool decoupled : {true, false})
    for (const bool amsgrad : {true, false}) {
      auto value = at::randn({1000}), gradient = at::randn({1000}), mean = at::zeros({1000}),
           square = at::zeros({1000});
      auto largest = amsgrad ? at::zeros({1000}) : at::Tensor();
      auto v = value.to(at::kDouble), m = at::zeros({1000}, at::kDouble), s = at::zeros({1000}, at::kDouble),
           l = at::zeros({1000}, at::kDouble);
      for (int t = 1; t <= 3; ++t) {
        const AdamStep step{.lr = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.99,
                            .eps = 1e-8,
                            .weight_decay = 0.1,
                            .correction1 = 1 - std::pow(0.9, t),
                            .correction2 = 1 - std::pow(0.99, t),
                            .gradient_scale = 0.5,
                            .decoupled = decoupled,
                            .maximize = false};
        adam(value, gradient, mean, square, largest, step);
        auto g = gradient.to(at::kDouble) * 0.5;
        if (!decoupled) g = g + v * 0.1;
        m = m * 0.9 + g * 0.1;
        s = s * 0.99 + g * g * 0.01;
        l = at::maximum(l, s);
        if (decoupled) v = v * (1 - 0.01 * 0.1);
        v = v - m / step.correction1 * 0.01 / (((amsgrad ? l : s) / step.correction2).sqrt() + 1e-8);
      }
      CHECK(distance(value, v.to(at::kFloat)) < 1e-5);
    }
  const auto x = at::randn({300'000});
  CHECK(std::abs(sum_of_squares(x) / x.to(at::kDouble).square().sum().item<double>() - 1) < 1e-6);
}

TEST_CASE("fused accumulation sums low-precision matmuls in the gradient's type", "[ops]") {
  const auto x = at::randn({64, 8}, at::kFloat).to(at::kBFloat16),
             dy = at::randn({64, 4}, at::kFloat).to(at::kBFloat16);
  const auto exact = at::matmul(dy.to(at::kDouble).t(), x.to(at::kDouble));
  const auto error = [&](bool fused, int times) {
    Parameter weight{.name = "w", .shape = {4, 8}, .grad = at::zeros({4, 8}, at::kFloat), .fused_accumulation = fused};
    for (int i = 0; i < times; ++i) accumulate_product({&weight}, dy, x);
    return distance(weight.grad, exact * times);
  };
  for (const int times : {1, 3}) {
    CHECK(error(true, times) < 1e-6);
    if (!has_host_matmul()) CHECK(error(false, times) > 1e-4);  // each matmul was rounded to bfloat16
  }
  Parameter experts{
      .name = "e", .shape = {2, 8, 4}, .grad = at::zeros({2, 8, 4}, at::kFloat), .fused_accumulation = true};
  accumulate_stacked(experts, x, dy, {24, 40});
  CHECK(distance(experts.grad[1],
                 at::matmul(x.narrow(0, 24, 40).to(at::kDouble).t(), dy.narrow(0, 24, 40).to(at::kDouble))) < 1e-6);
}

TEST_CASE("matmuls of stacked experts run in the autocast type", "[ops]") {
  Parameter weight = make({2, 6, 5}, at::kFloat);
  const std::vector<std::int64_t> rows = {3, 4};
  const auto run = [&](std::optional<at::ScalarType> type) {
    weight.matmul_type = type;
    weight.fresh = true;
    const auto x = leaf(at::arange(42, at::kFloat).view({7, 6}).div(17).sin());
    const auto y = grouped_linear(x, GroupedLinear{.stacked = &weight}, {rows});
    CHECK(y.scalar_type() == at::kFloat);
    run_backward(Origin(y), at::arange(35, at::kFloat).view({7, 5}).div(13).cos());
    return std::vector<at::Tensor>{y.detach(), x.grad().clone(), weight.grad.clone()};
  };
  const auto exact = run(std::nullopt), coarse = run(at::kBFloat16);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CHECK(distance(coarse[i], exact[i]) < 3e-2);
    CHECK(distance(coarse[i], exact[i]) > 1e-4);
  }
}

}  // namespace automodel::ops
