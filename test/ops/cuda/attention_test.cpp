// Attention as on GPUs, with LibTorch's fused kernels emulated, against autograd in float64.
#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "base/log.h"
#include "base/score_chunk.h"
#include "ops/against_autograd.h"
#include "ops/attention_block.h"
#include "ops/cuda/emulated_flash.h"
#include "ops/cuda/observed_calls.h"

namespace automodel::ops {
namespace {

struct Case {
  std::int64_t batch = 2, tokens = 24, heads = 4, groups = 2, width = 16, value_width = 16;
  double softcap = 0;
  std::int64_t window = 0;
  bool causal = true, sinks = false;
  std::vector<std::vector<std::int64_t>> lengths = {};  ///< of each row's documents; the remaining tokens are one more
};

/// int64 [rows, tokens].
at::Tensor segments_of(const Case& c) {
  auto out = at::zeros({c.batch, c.tokens}, at::kLong);
  for (std::size_t row = 0; row < c.lengths.size(); ++row) {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < c.lengths[row].size(); begin += c.lengths[row][i++])
      out.select(0, static_cast<std::int64_t>(row)).narrow(0, begin, c.lengths[row][i]).fill_(static_cast<int>(i) + 1);
  }
  return out;
}

/// bool [batch or 1, 1, tokens, tokens].
at::Tensor visible(const Case& c) {
  const auto i = at::arange(c.tokens).unsqueeze(1), j = at::arange(c.tokens).unsqueeze(0);
  auto mask = at::ones({c.tokens, c.tokens}, at::kBool);
  if (c.causal) mask = mask.logical_and(j.le(i));
  if (c.window > 0) mask = mask.logical_and((i - j).abs().lt(c.window));
  mask = mask.view({1, 1, c.tokens, c.tokens});
  if (c.lengths.empty()) return mask;
  const auto numbers = segments_of(c);
  return mask.logical_and(numbers.unsqueeze(2).eq(numbers.unsqueeze(1)).unsqueeze(1));
}

/// Plain operations with autograd; all scores at once.
at::Tensor reference(const Case& c, const std::vector<at::Tensor>& in, double scale, const at::Tensor& sinks) {
  const auto own = c.heads / c.groups;
  auto scores = at::matmul(in[0].transpose(1, 2), in[1].repeat_interleave(own, 2).permute({0, 2, 3, 1})) * scale;
  if (c.softcap > 0) scores = at::tanh(scores / c.softcap) * c.softcap;
  scores = scores.masked_fill(visible(c).logical_not(), -1e30);
  const auto logit = sinks.view({1, -1, 1, 1}).expand({c.batch, c.heads, c.tokens, 1});
  const auto weights = at::softmax(c.sinks ? at::cat({scores, logit}, -1) : scores, -1).narrow(-1, 0, c.tokens);
  return at::matmul(weights, in[2].repeat_interleave(own, 2).transpose(1, 2)).transpose(1, 2);
}

/// Results and gradients are rounded to the type once or twice; errors of sums over a head's width grow with its square
/// root.
double rounding(at::ScalarType type, std::int64_t width = 16) {
  const double each = type == at::kBFloat16 ? 1.0 / 64
                      : type == at::kHalf   ? 1.0 / 512
                      : type == at::kFloat  ? 1e-5
                                            : 1e-11;
  return each * std::sqrt(static_cast<double>(std::max<std::int64_t>(width, 16)) / 16);
}

void check(const Case& c, at::ScalarType type) {
  at::manual_seed(1);
  INFO(c.tokens << " tokens, " << c.heads << " heads, " << c.groups << " groups, width " << c.width << ", values "
                << c.value_width << ", cap " << c.softcap << ", window " << c.window << ", causal " << c.causal
                << ", sinks " << c.sinks << ", documents " << c.lengths.size() << ", " << at::toString(type));
  const auto random = [&](std::int64_t heads, std::int64_t width) {
    return at::randn({c.batch, c.tokens, heads, width}).to(type);
  };
  std::vector<at::Tensor> ours = {random(c.heads, c.width), random(c.groups, c.width), random(c.groups, c.value_width)};
  std::vector<at::Tensor> theirs;
  for (auto& x : ours) {
    theirs.push_back(leaf(x.to(at::kDouble).clone()));
    x = leaf(x);
  }
  Parameter sinks{.name = "sinks", .shape = {c.heads}};
  sinks.value = at::randn({c.heads}).to(type);
  sinks.grad = at::zeros({c.heads}, at::kDouble);
  const auto logits = leaf(sinks.value.to(at::kDouble).clone());
  AttentionOptions options{.scale = 0.3, .causal = c.causal, .window = c.window, .softcap = c.softcap};
  if (c.sinks) options.sinks = &sinks;
  if (!c.lengths.empty()) {
    options.segments = segments_of(c);
    options.documents = Documents::of(options.segments);
    REQUIRE(options.documents != nullptr);
  }
  const auto out = attention(ours[0], ours[1], ours[2], options),
             expected = reference(c, theirs, options.scale, logits);
  CHECK(out.scalar_type() == type);
  CHECK(distance(out.detach(), expected.detach()) < rounding(type, c.width));
  const auto gradient = at::randn(out.sizes()).to(type);
  run_backward(Origin(out), gradient);
  run_backward(Origin(expected), gradient.to(at::kDouble));
  for (std::size_t i = 0; i < ours.size(); ++i) {
    INFO("input " << i);
    // Two products instead of one: of the gradient with the values, and of the scores' gradient with queries or keys.
    CHECK(distance(ours[i].grad(), theirs[i].grad()) < 2 * rounding(type, c.width));
  }
  if (c.sinks) CHECK(distance(sinks.grad, logits.grad()) < 4 * rounding(type, c.width));  // a sum over all tokens
}

/// The fused kernel calls that `run` makes.
template <class Run>
FlashCalls calls_of(const Run& run) {
  const auto before = flash_calls();
  run();
  const auto after = flash_calls();
  return {after.forward - before.forward, after.backward - before.backward, after.of_documents - before.of_documents};
}

void check_fused(const Case& c, int of_documents) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const auto calls = calls_of([&] { check(c, type); });
    CHECK(calls.forward == 1);
    CHECK(calls.backward == 1);
    CHECK(calls.of_documents == of_documents);
  }
}
void check_composed(const Case& c, at::ScalarType type) {
  CHECK(calls_of([&] { check(c, type); }).forward == 0);
}

}  // namespace

TEST_CASE("fused attention on a device handles windows, sinks and various head widths", "[device]") {
  check_fused({.window = 5}, 0);
  check_fused({.window = 1}, 0);
  check_fused({.window = 5, .causal = false}, 0);
  check_fused({.sinks = true}, 0);
  check_fused({.heads = 6, .groups = 1, .window = 7, .sinks = true}, 0);
  check_fused({.width = 20, .value_width = 12}, 0);
  check_fused({.batch = 1, .tokens = 130, .heads = 2, .groups = 2, .width = 256, .value_width = 256, .sinks = true}, 0);
}

TEST_CASE("fused attention on a device handles packed documents without masks", "[device]") {
  check_fused({.lengths = {{10, 3, 11}, {10, 3, 11}}}, 2);
  check_fused({.lengths = {{1, 1, 22}, {7, 7}}}, 2);
  check_fused({.batch = 3, .heads = 8, .window = 4, .sinks = true, .lengths = {{24}, {5, 1, 9, 9}, {23}}}, 2);
  check_fused({.width = 20, .causal = false, .lengths = {{9, 15}, {4, 20}}}, 2);
}

TEST_CASE("attention falls back to composed operations where fused attention does not apply", "[device]") {
  check_composed({.softcap = 2, .sinks = true}, at::kBFloat16);
  check_composed({.softcap = 2, .window = 6, .lengths = {{10, 3, 11}, {1, 20}}}, at::kBFloat16);
  check_composed({.width = 264, .value_width = 264}, at::kBFloat16);
  check_composed({.window = 5, .lengths = {{10, 3, 11}, {1, 20}}}, at::kDouble);
  check_composed({.window = 5, .causal = false, .sinks = true}, at::kDouble);
}

TEST_CASE("attention blocks use the fused kernels and combine by their logsums", "[device]") {
  // Three blocks of eight keys; the 16 queries begin eight tokens after the first key.
  const std::int64_t queries = 16, keys = 24, step = 8;
  at::manual_seed(2);
  for (const std::int64_t window : {0, 3, 11}) {
    const auto random = [](std::int64_t tokens, std::int64_t heads) {
      return at::randn({2, tokens, heads, 16}).to(at::kBFloat16);
    };
    const auto q = random(queries, 4), k = random(keys, 2), v = random(keys, 2), gradient = random(queries, 4);
    const Case like{.tokens = keys, .window = window};
    std::vector<at::Tensor> whole_in = {leaf(at::cat({at::zeros({2, keys - queries, 4, 16}), q.to(at::kDouble)}, 1)),
                                        leaf(k.to(at::kDouble)), leaf(v.to(at::kDouble))};
    const auto expected = reference(like, whole_in, 0.3, at::zeros({4})).narrow(1, keys - queries, queries);
    run_backward(Origin(expected), gradient.to(at::kDouble));
    const auto options_of = [&](std::int64_t begin) {
      BlockOptions options{.scale = 0.3, .after = keys - queries - begin};
      if (window > 0) options.before = window - 1 - options.after;
      return options;
    };
    const auto calls = calls_of([&] {
      BlockResult sum;
      for (std::int64_t begin = 0; begin < keys; begin += step) {
        const auto block = attention_block(q, k.narrow(1, begin, step), v.narrow(1, begin, step), options_of(begin));
        if (sum.out.defined())
          join_block(sum, block);
        else
          sum = {block.out.to(at::kFloat), block.logsum.contiguous()};
      }
      CHECK(distance(sum.out, expected.detach()) < rounding(at::kBFloat16));
      auto dq = at::zeros(q.sizes());
      for (std::int64_t begin = 0; begin < keys; begin += step) {
        const Qkv in{q, k.narrow(1, begin, step), v.narrow(1, begin, step)};
        const Qkv out{at::empty_like(in.q), at::empty(in.k.sizes(), in.k.options()),
                      at::empty(in.v.sizes(), in.v.options())};
        attention_block_backward(gradient, in, sum, options_of(begin), out);
        dq.add_(out.q);
        // As in check(): gradients are at the end of two products, and of keys sums over 16 queries of two heads.
        CHECK(distance(out.k, whole_in[1].grad().narrow(1, begin, step)) < 2 * rounding(at::kBFloat16));
        CHECK(distance(out.v, whole_in[2].grad().narrow(1, begin, step)) < 2 * rounding(at::kBFloat16));
      }
      CHECK(distance(dq, whole_in[0].grad().narrow(1, keys - queries, queries)) < 2 * rounding(at::kBFloat16));
    });
    // Blocks in which 16 queries see only the first of eight keys cannot use the fused kernels, which would show all.
    // Nor can those of the longer window in which 16 queries see eight keys from some key on: they would hide some.
    CHECK(calls.forward == (window == 3 ? 3 : window == 11 ? 1 : 2));
  }
}

TEST_CASE("windows with more queries than keys see what they should", "[device]") {
  const auto random = [](std::int64_t tokens) { return at::randn({1, tokens, 1, 16}).to(at::kBFloat16); };
  for (std::int64_t queries = 1; queries <= 8; ++queries)
    for (std::int64_t keys = 1; keys <= 4; ++keys)
      for (std::int64_t before = -1; before <= queries + 1; ++before)
        for (const std::int64_t after : {std::int64_t{0}, std::int64_t{2}, std::int64_t{5}, kEverything}) {
          INFO(queries << " queries, " << keys << " keys, before " << before << ", after " << after);
          const auto q = random(queries), k = random(keys), v = random(keys);
          const auto i = at::arange(queries).unsqueeze(1), j = at::arange(keys).unsqueeze(0);
          const auto seen = j.ge(i - before).logical_and(j.le(i + after));
          auto scores =
              at::matmul(q.to(at::kDouble).select(2, 0), k.to(at::kDouble).select(2, 0).transpose(1, 2)) * 0.3;
          scores = scores.masked_fill(seen.logical_not(), kMaskedLogSum);
          const auto some = seen.any(1).view({1, -1, 1});
          const auto expected =
              at::matmul(at::softmax(scores, -1), v.to(at::kDouble).select(2, 0)).masked_fill(~some, 0);
          const auto out = attention_block(q, k, v, {.scale = 0.3, .before = before, .after = after}).out;
          CHECK(distance(out.select(2, 0).masked_fill(~some, 0), expected) < rounding(at::kBFloat16));
        }
}

TEST_CASE("attention that cuDNN refuses is computed by another kernel, with one warning", "[device]") {
  // On a CPU PyTorch's attention has no such choice, so one that fails like cuDNN's takes its place.
  using Masks = std::optional<at::Tensor>;
  const auto refuses = +[](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& mask,
                           double dropout, bool causal, std::optional<double> scale, bool shared) {
    TORCH_CHECK(!at::globalContext().userEnabledCuDNNSDP(),
                "cuDNN Frontend error: [cudnn_frontend] Error: No valid execution plans built.");
    return std::get<0>(
        at::_scaled_dot_product_attention_math(q, k, v, mask, dropout, causal, std::nullopt, scale, shared));
  };
  std::vector<std::string> warnings;
  log::set_listener([&warnings](std::string_view text) { warnings.emplace_back(text); });
  {
    torch::Library cpu(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    torch::Library autograd(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__);
    cpu.impl("scaled_dot_product_attention", refuses);
    autograd.impl("scaled_dot_product_attention", refuses);
    check({.groups = 4}, at::kFloat);
    check({.groups = 4}, at::kFloat);
  }
  log::set_listener({});
  at::globalContext().setSDPUseCuDNN(true);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("flash attention is used instead: cuDNN Frontend error: [cudnn_frontend] Error: No valid") !=
        std::string::npos);
}

TEST_CASE("forward and backward passes never hold more attention scores than one chunk", "[device]") {
  const Case c{.batch = 1, .tokens = 1024, .softcap = 2, .sinks = true};
  const std::int64_t all = c.batch * c.heads * c.tokens * c.tokens;
  static_assert(kScoresOnHost == 1 << 21);
  REQUIRE(all > kScoresOnHost);
  check(c, at::kDouble);
  check({.batch = 1, .tokens = 1024, .softcap = 2, .window = 100, .lengths = {{700, 300}}}, at::kDouble);
  auto q = leaf(at::randn({1, c.tokens, c.heads, c.width})), k = leaf(at::randn({1, c.tokens, c.groups, c.width})),
       v = leaf(at::randn({1, c.tokens, c.groups, c.width}));
  CHECK(test::largest_result([&] {
          const auto out = attention(q, k, v, {.scale = 0.3, .softcap = 2});
          run_backward(Origin(out), at::randn(out.sizes()));
        }) <= kScoresOnHost);
}

}  // namespace automodel::ops
