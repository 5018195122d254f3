// Chunked recurrences against the token-by-token recurrence and autograd: outputs and gradients, with lengths that are
// not multiples of the chunk, decays from none to total, and packed documents.
#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "ops/against_autograd.h"
#include "ops/channel_scores.h"
#include "ops/decay.h"
#include "ops/decayed_scan.h"
#include "ops/delta_rule.h"
#include "ops/gated_norm.h"
#include "ops/short_conv.h"

namespace automodel::ops {
namespace {

/// Document numbers of one or more sequences of `tokens` tokens, with documents that begin at `starts`.
at::Tensor documents(std::int64_t tokens, const std::vector<std::vector<std::int64_t>>& starts) {
  auto out = at::zeros({static_cast<std::int64_t>(starts.size()), tokens}, at::kLong);
  for (std::size_t row = 0; row < starts.size(); ++row)
    for (const auto start : starts[row])
      if (start < tokens) out.select(0, static_cast<std::int64_t>(row)).narrow(0, start, tokens - start) += 1;
  return out;
}

/// [batch]: 0 where a document begins, else 1.
at::Tensor going_on(const at::Tensor& segments, std::int64_t token, std::int64_t batch, at::ScalarType type) {
  if (token == 0) return at::zeros({batch}, type);
  if (!segments.defined()) return at::ones({batch}, type);
  return segments.select(1, token).eq(segments.select(1, token - 1)).to(type);
}

/// Logarithms of decays of all strengths: some tokens forget nothing, some everything.
at::Tensor some_decays(const std::vector<std::int64_t>& shape, at::ScalarType type) {
  const auto kind = at::rand(shape, type), strength = at::rand(shape, type);
  return leaf(-(strength * 0.3 * kind.lt(0.8) + strength * 60 * kind.gt(0.95)));
}

struct Case {
  std::int64_t tokens, chunk;
  std::vector<std::vector<std::int64_t>> starts = {};
  at::Tensor segments() const { return starts.empty() ? at::Tensor() : documents(tokens, starts); }
};
const std::vector<Case> kCases = {
    {1, 16},
    {5, 16},
    {16, 16},
    {37, 16},
    {64, 16},
    {50, 64},
    {3, 2},
    {37, 1},
    {45, 16, {{7, 16, 17, 40}, {20}}},
    {33, 16, {{32}, {16, 31}}},
    {20, 64, {{1, 2, 19}, {}}},
    {48, 8, {{24}, {8, 23}}},
};

at::Tensor plain_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                      const at::Tensor& steps, const at::Tensor& segments) {
  const auto batch = v.size(0), heads = v.size(2), copies = heads / q.size(2);
  const auto query = q.repeat_interleave(copies, 2), key = k.repeat_interleave(copies, 2);
  auto state = at::zeros({batch, heads, q.size(3), v.size(3)}, v.options());
  std::vector<at::Tensor> out;
  for (std::int64_t t = 0; t < v.size(1); ++t) {
    const auto keep = decay.select(1, t).exp() * going_on(segments, t, batch, v.scalar_type()).unsqueeze(1);
    auto value = v.select(1, t);
    if (steps.defined()) value = value * steps.select(1, t).unsqueeze(2);
    state = state * keep.unsqueeze(2).unsqueeze(3) + key.select(1, t).unsqueeze(3) * value.unsqueeze(2);
    out.push_back((state * query.select(1, t).unsqueeze(3)).sum(2));
  }
  return at::stack(out, 1);
}

at::Tensor unit(const at::Tensor& x, double eps) {
  return x * at::rsqrt(x.square().sum(-1, true) + eps);
}

at::Tensor plain_delta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay,
                       const at::Tensor& rate, double eps, const at::Tensor& segments) {
  const auto batch = v.size(0), heads = v.size(2), copies = heads / q.size(2);
  const auto query = unit(q, eps).repeat_interleave(copies, 2) / std::sqrt(static_cast<double>(q.size(3)));
  const auto key = unit(k, eps).repeat_interleave(copies, 2);
  auto state = at::zeros({batch, heads, q.size(3), v.size(3)}, v.options());
  std::vector<at::Tensor> out;
  for (std::int64_t t = 0; t < v.size(1); ++t) {
    auto keep = decay.select(1, t).exp();
    if (keep.dim() == 2) keep = keep.unsqueeze(2);
    keep = keep * going_on(segments, t, batch, v.scalar_type()).view({batch, 1, 1});
    state = state * keep.unsqueeze(3);
    const auto known = (state * key.select(1, t).unsqueeze(3)).sum(2);
    const auto correction = (v.select(1, t) - known) * rate.select(1, t).unsqueeze(2);
    state = state + key.select(1, t).unsqueeze(3) * correction.unsqueeze(2);
    out.push_back((state * query.select(1, t).unsqueeze(3)).sum(2));
  }
  return at::stack(out, 1);
}

constexpr std::int64_t kBatch = 2;

TEST_CASE("the chunked scan equals the token-by-token recurrence", "[recurrence]") {
  for (const auto type : kTypes)
    for (const auto& c : kCases) {
      CAPTURE(c.tokens, c.chunk, c.starts.size());
      const std::int64_t groups = 2, heads = 6;
      auto q = input({kBatch, c.tokens, groups, 5}, type), k = input({kBatch, c.tokens, groups, 5}, type),
           v = input({kBatch, c.tokens, heads, 3}, type), decay = some_decays({kBatch, c.tokens, heads}, type),
           steps = leaf(at::rand({kBatch, c.tokens, heads}, type));
      const auto segments = c.segments();
      const ScanOptions options{.chunk = c.chunk, .segments = segments};
      compare(
          type, {q, k, v, decay, steps}, {},
          [&] {
            return decayed_scan({q, k, v, decay, steps}, options);
          },
          [&](const auto& in, const auto&) { return plain_scan(in[0], in[1], in[2], in[3], in[4], segments); });
      const auto fixed = at::rand({heads}, type).neg().view({1, 1, heads}).expand({kBatch, c.tokens, heads});
      auto q2 = leaf(q.detach()), k2 = leaf(k.detach()), v2 = leaf(v.detach());
      compare(
          type, {q2, k2, v2}, {},
          [&] {
            return decayed_scan({q2, k2, v2, fixed, {}}, options);
          },
          [&](const auto& in, const auto&) { return plain_scan(in[0], in[1], in[2], fixed, {}, segments); });
    }
}

TEST_CASE("the chunked delta rule equals the recurrence, with decays per head or per channel", "[recurrence]") {
  for (const auto type : kTypes)
    for (const auto& c : kCases)
      for (const bool channels : {false, true}) {
        CAPTURE(c.tokens, c.chunk, c.starts.size(), channels);
        const std::int64_t heads = 4, groups = channels ? 4 : 2, width = 6;
        auto q = input({kBatch, c.tokens, groups, width}, type), k = input({kBatch, c.tokens, groups, width}, type),
             v = input({kBatch, c.tokens, heads, 3}, type),
             decay = channels ? some_decays({kBatch, c.tokens, heads, width}, type)
                              : some_decays({kBatch, c.tokens, heads}, type),
             rate = leaf(at::rand({kBatch, c.tokens, heads}, type));
        const auto segments = c.segments();
        compare(
            type, {q, k, v, decay, rate}, {},
            [&] {
              return delta_rule({q, k, v, decay, rate}, 1e-6, {.chunk = c.chunk, .segments = segments});
            },
            [&](const auto& in, const auto&) {
              return plain_delta(in[0], in[1], in[2], in[3], in[4], 1e-6, segments);
            });
      }
}

TEST_CASE("scan and delta rule in slices of rows, groups and heads equal the recurrence", "[recurrence]") {
  const std::int64_t tokens = 9, heads = 6, rows = 3;
  const auto segments = documents(tokens, {{2}, {}, {8}});
  for (const std::int64_t groups : {1, 2, 6})
    for (const std::int64_t heads_at_once : {0, 2, 4, 6, 13}) {
      CAPTURE(groups, heads_at_once);
      const ScanOptions options{
          .chunk = 4, .slice = std::max<std::int64_t>(1, heads_at_once * tokens), .segments = segments};
      auto q = input({rows, tokens, groups, 5}, at::kDouble), k = input({rows, tokens, groups, 5}, at::kDouble),
           v = input({rows, tokens, heads, 3}, at::kDouble), decay = some_decays({rows, tokens, heads}, at::kDouble),
           rate = leaf(at::rand({rows, tokens, heads}, at::kDouble));
      compare(
          at::kDouble, {q, k, v, decay, rate}, {},
          [&] {
            return decayed_scan({q, k, v, decay, rate}, options);
          },
          [&](const auto& in, const auto&) { return plain_scan(in[0], in[1], in[2], in[3], in[4], segments); });
      for (auto* each : {&q, &k, &v, &decay, &rate}) *each = leaf(each->detach());
      compare(
          at::kDouble, {q, k, v, decay, rate}, {},
          [&] {
            return delta_rule({q, k, v, decay, rate}, 1e-6, options);
          },
          [&](const auto& in, const auto&) { return plain_delta(in[0], in[1], in[2], in[3], in[4], 1e-6, segments); });
    }
}

TEST_CASE("packed documents give the same outputs as each document alone", "[recurrence]") {
  const std::vector<std::int64_t> starts = {11, 16, 30};
  const std::int64_t tokens = 41;
  const auto segments = documents(tokens, {starts});
  const auto q = at::randn({1, tokens, 2, 4}, at::kDouble), k = at::randn({1, tokens, 2, 4}, at::kDouble),
             v = at::randn({1, tokens, 2, 3}, at::kDouble), x = at::randn({1, tokens, 8}, at::kDouble);
  const auto decay = -at::rand({1, tokens, 2}, at::kDouble), rate = at::rand({1, tokens, 2}, at::kDouble);
  auto weight = make({8, 1, 4}, at::kDouble);
  const ShortConv conv{.weights = {{&weight}}};
  const auto run = [&](std::int64_t first, std::int64_t count, const at::Tensor& numbers) {
    const auto part = [&](const at::Tensor& whole) { return whole.narrow(1, first, count); };
    const ScanOptions options{.chunk = 8, .segments = numbers};
    return at::cat({decayed_scan({part(q), part(k), part(v), part(decay), {}}, options).flatten(2),
                    delta_rule({part(q), part(k), part(v), part(decay), part(rate)}, 1e-6, options).flatten(2),
                    short_conv(part(x), conv, numbers)},
                   2);
  };
  const auto packed = run(0, tokens, segments);
  std::int64_t first = 0;
  for (const auto end : {starts[0], starts[1], starts[2], tokens}) {
    CHECK(distance(packed.narrow(1, first, end - first), run(first, end - first, {})) < 1e-14);
    first = end;
  }
}

TEST_CASE("scores with per-channel decay stay finite where everything is forgotten", "[recurrence]") {
  const auto x = at::randn({3, 32, 4}, at::kFloat), k = at::randn({3, 32, 4}, at::kFloat);
  const auto sum = at::full({3, 32, 4}, -200.0, at::kFloat).cumsum(1);
  const auto scores = channel_scores(x, k, sum);
  CHECK(distance(scores.diagonal(0, 1, 2), (x * k).sum(2)) < 1e-6);
  CHECK(scores.tril(-1).abs().max().item<float>() == 0.0F);
  CHECK(scores.triu(1).abs().max().item<float>() == 0.0F);
}

at::Tensor plain_conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool silu,
                      const at::Tensor& segments) {
  const auto taps = weight.size(2);
  std::vector<at::Tensor> out;
  for (std::int64_t t = 0; t < x.size(1); ++t) {
    auto sum = at::zeros({x.size(0), x.size(2)}, x.options());
    if (bias.defined()) sum = sum + bias;
    for (std::int64_t back = 0; back < taps && back <= t; ++back) {
      auto part = x.select(1, t - back) * weight.select(1, 0).select(1, taps - 1 - back);
      if (segments.defined())
        part = part * segments.select(1, t).eq(segments.select(1, t - back)).to(x.scalar_type()).unsqueeze(1);
      sum = sum + part;
    }
    out.push_back(silu ? at::silu(sum) : sum);
  }
  return at::stack(out, 1);
}

TEST_CASE("a short convolution sees only its own document and no later tokens", "[recurrence]") {
  // Half precision has no kernel and uses ATen's operations, as on a GPU.
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const bool silu : {true, false})
      for (const std::int64_t taps : {1, 2, 4, 8})
        for (const auto& c : kCases) {
          CAPTURE(taps, c.tokens, c.starts.size(), silu);
          const auto segments = c.segments();
          if (at::isReducedFloatingType(type) && taps != 4) continue;
          auto first = make({300, 1, taps}, type), second = make({6, 1, taps}, type), bias = make({300}, type),
               other_bias = make({6}, type);
          auto x = input({kBatch, c.tokens, 306}, type);
          compare(
              type, {x}, {&first, &second, &bias, &other_bias},
              [&] {
                return short_conv(
                    x, {.weights = {{&first}, {&second}}, .biases = {{&bias}, {&other_bias}}, .silu = silu}, segments);
              },
              [&](const auto& in, const auto& w) {
                return plain_conv(in[0], at::cat({w[0], w[1]}, 0), at::cat({w[2], w[3]}, 0), silu, segments);
              });
        }
}

TEST_CASE("a short convolution accepts a slice of a fused projection and rows of its weight", "[recurrence]") {
  auto weight = make({10, 1, 4}, at::kDouble);
  auto x = input({kBatch, 9, 20}, at::kDouble);
  const ShortConv conv{.weights = {{&weight, 2, 3}, {&weight, 7, 2}}};
  compare(
      at::kDouble, {x}, {&weight}, [&] { return short_conv(x.narrow(2, 4, 5), conv, {}); },
      [](const auto& in, const auto& w) {
        return plain_conv(in[0].narrow(2, 4, 5), at::cat({w[0].narrow(0, 2, 3), w[0].narrow(0, 7, 2)}, 0), {}, true,
                          {});
      });
}

TEST_CASE("decays and time steps computed from projections match ATen", "[recurrence]") {
  for (const auto type : kTypes) {
    auto rate = make({3}, type), bias = make({3}, type), wide = make({6}, type), odd = make({1, 1, 3, 1}, type);
    auto x = input({kBatch, 7, 3}, type), y = input({kBatch, 7, 3, 2}, type);
    compare(
        type, {x}, {&rate, &bias}, [&] { return decay_gate(x, {.rate = {&rate}, .bias = {&bias}}); },
        [](const auto& in, const auto& w) { return -w[0].exp() * at::softplus(in[0] + w[1]); });
    compare(
        type, {y}, {&odd, &wide}, [&] { return decay_gate(y, {.rate = {&odd}, .bias = {&wide}}); },
        [](const auto& in, const auto& w) {
          return -w[0].view({3, 1}).exp() * at::softplus(in[0] + w[1].view({3, 2}));
        });
    auto z = input({kBatch, 7, 3, 2}, type);
    rate.fresh = wide.fresh = true;
    compare(
        type, {z}, {&rate, &wide},
        [&] { return decay_gate(z, {.rate = {&rate}, .bias = {&wide}, .lower_bound = -5.0}); },
        [](const auto& in, const auto& w) {
          return -5 * at::sigmoid(w[0].view({3, 1}).exp() * (in[0] + w[1].view({3, 2})));
        });
    for (const double most : {0.0, 0.9}) {
      auto in = input({kBatch, 7, 3}, type);
      rate.fresh = bias.fresh = true;
      compare(
          type, {in}, {&rate, &bias},
          [&] {
            const auto [steps, decays] = step_gate(in, {.rate = {&rate}, .bias = {&bias}, .least = 0.4, .most = most});
            return at::cat({steps, decays}, 2);
          },
          [&](const auto& leaves, const auto& w) {
            auto steps = at::softplus(leaves[0] + w[1]).clamp_min(0.4);
            if (most > 0) steps = steps.clamp_max(most);
            return at::cat({steps, -w[0].exp() * steps}, 2);
          });
    }
  }
}

TEST_CASE("a gated norm matches ATen in either order, with per-group, shared or no weights", "[recurrence]") {
  for (const auto type : kTypes)
    for (const auto order : {GateOrder::kNormFirst, GateOrder::kGateFirst})
      for (const auto shape : {GateShape::kSilu, GateShape::kSigmoid})
        for (const std::int64_t width : {12, 4, 0}) {
          auto weight = make({std::max<std::int64_t>(width, 1)}, type);
          auto x = input({kBatch, 5, 3, 4}, type), gate = input({kBatch, 5, 3, 4}, type);
          GatedNorm norm{.eps = 1e-3, .order = order, .shape = shape};
          std::vector<Parameter*> weights;
          if (width > 0) {
            norm.weight = {&weight};
            weights = {&weight};
          }
          compare(
              type, {x, gate}, weights, [&] { return gated_norm(x, gate, norm); },
              [&](const auto& in, const auto& w) {
                const auto act = shape == GateShape::kSilu ? at::silu(in[1]) : at::sigmoid(in[1]);
                if (w.empty()) return in[0] * act;
                const auto z = order == GateOrder::kGateFirst ? in[0] * act : in[0];
                const auto y = z * at::rsqrt(z.square().mean(-1, true) + 1e-3) * w[0].view({-1, 4});
                return order == GateOrder::kGateFirst ? y : y * act;
              });
        }
}

}  // namespace
}  // namespace automodel::ops
