// Blockwise attention in bfloat16 and float32 on the CPU against float64.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>

#include "ops/attention_block.h"
#include "torch_catch.h"

namespace automodel::ops {
namespace {

struct Exact {
  at::Tensor out, logsum, dq, dk, dv;
};

/// [batch, tokens, heads, width] to [batch, heads, tokens, width] in double.
at::Tensor turned(const at::Tensor& x) {
  return x.to(at::kDouble).transpose(1, 2);
}

/// From the definition. Every query must see a key.
Exact exact(const Qkv& in, const at::Tensor& gradient, const BlockOptions& options) {
  const auto groups = in.k.size(2), per_group = in.q.size(2) / groups;
  const auto q = turned(in.q), k = turned(in.k).repeat_interleave(per_group, 1),
             v = turned(in.v).repeat_interleave(per_group, 1), g = turned(gradient);
  const auto i = at::arange(in.q.size(1)).unsqueeze(1), j = at::arange(in.k.size(1)).unsqueeze(0);
  const auto hidden = j.gt(i + options.after).logical_or(j.lt(i - options.before));
  const auto scores = (at::matmul(q, k.transpose(2, 3)) * options.scale).masked_fill(hidden, -1e300);
  const auto logsum = at::logsumexp(scores, {3}, true);
  const auto weights = (scores - logsum).exp();
  const auto out = at::matmul(weights, v);
  const auto dweights = at::matmul(g, v.transpose(2, 3));
  const auto dscores = weights * (dweights - (g * out).sum(-1, true)) * options.scale;
  const auto joined = [&](const at::Tensor& x) {
    return x.view({x.size(0), groups, per_group, x.size(2), x.size(3)}).sum(2).transpose(1, 2);
  };
  return {out.transpose(1, 2), logsum.squeeze(3).transpose(1, 2), at::matmul(dscores, k).transpose(1, 2),
          joined(at::matmul(dscores.transpose(2, 3), q)), joined(at::matmul(weights.transpose(2, 3), g))};
}

double far(const at::Tensor& x, const at::Tensor& exact) {
  return ((x.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

struct Case {
  std::int64_t batch, queries, keys, heads, groups, width;
  std::int64_t before = kEverything, after = 0;
};

/// `spacing`: of the type's values around 1; for float32, the error of sums of a thousand terms.
void check_blocks(at::ScalarType type, double spacing) {
  at::manual_seed(11);
  // One tile, several tiles of queries and keys, incomplete tiles, windows, earlier and later blocks of a ring.
  for (const auto& c :
       {Case{1, 1, 1, 1, 1, 8}, Case{2, 5, 5, 4, 2, 16}, Case{1, 128, 128, 4, 2, 32}, Case{2, 129, 129, 2, 1, 64},
        Case{1, 700, 700, 2, 2, 32}, Case{1, 1100, 1100, 1, 1, 24}, Case{1, 300, 300, 2, 1, 32, 70},
        Case{1, 700, 700, 1, 1, 32, 129}, Case{1, 90, 90, 2, 2, 80, 3, 3}, Case{1, 200, 260, 2, 1, 32, kEverything, 60},
        Case{1, 140, 140, 2, 2, 16, kEverything, kEverything}, Case{1, 64, 600, 2, 1, 32, kEverything, kEverything}}) {
    CAPTURE(c.batch, c.queries, c.keys, c.heads, c.groups, c.width, c.before, c.after);
    // Slices of a fused QKV projection, as in layers.
    const auto joined = at::randn({c.batch, std::max(c.queries, c.keys), (c.heads + 2 * c.groups) * c.width}).to(type);
    const auto part = [&](const at::Tensor& x, std::int64_t first, std::int64_t heads, std::int64_t tokens) {
      return x.narrow(1, 0, tokens).narrow(2, first * c.width, heads * c.width).unflatten(2, {heads, c.width});
    };
    const auto split = [&](const at::Tensor& x) {
      return Qkv{part(x, 0, c.heads, c.queries), part(x, c.heads, c.groups, c.keys),
                 part(x, c.heads + c.groups, c.groups, c.keys)};
    };
    const auto in = split(joined), out = split(at::full(joined.sizes(), 5.0, joined.options()));
    const auto gradient = at::randn({c.batch, c.queries, c.heads, c.width}).to(type);
    const BlockOptions options{.scale = 0.25, .before = c.before, .after = c.after};
    const auto expected = exact(in, gradient, options);
    const auto result = attention_block(in.q, in.k, in.v, options);
    // Attention weights and outputs are rounded to the type once each, by at most half of `spacing`.
    CHECK(far(result.out, expected.out) < spacing);
    CHECK((result.logsum.to(at::kDouble) - expected.logsum).abs().max().item<double>() < std::min(1e-4, 64 * spacing));
    attention_block_backward(gradient, in, result, options, out);
    // LibTorch, if it computes this, also rounds the contribution of each head of a group.
    CHECK(far(out.v, expected.dv) < 2 * spacing);
    if (c.keys == 1) continue;  // with one key, scores have no gradient
    // The gradient of a score is a difference in which one term contains the rounded output.
    CHECK(far(out.q, expected.dq) < 4 * spacing);
    CHECK(far(out.k, expected.dk) < 4 * spacing);
  }
}

}  // namespace

TEST_CASE("blockwise attention on the CPU matches float64, forward and backward", "[host attention]") {
  check_blocks(at::kBFloat16, std::ldexp(1, -8));
  check_blocks(at::kFloat, std::ldexp(1, -20));
}

}  // namespace automodel::ops
