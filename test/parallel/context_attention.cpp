// Attention with tokens sharded over ranks has the outputs and gradients of attention on one rank.
//
//   context_attention [--as-on-gpus] [options of rank_suite.h]
//
// As on GPUs: in bfloat16, with an emulation of their fused attention, and against float64.
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "base/random.h"
#include "ops/cuda/emulated_flash.h"
#include "ops/graph.h"
#include "parallel/context/context_parallel.h"
#include "parallel/context/layout.h"
#include "rank_suite.h"

namespace automodel {
namespace {

/// Set by main() before any rank starts.
at::ScalarType type_under_test = at::kDouble;

constexpr std::int64_t kBatch = 2, kTokens = 32, kHeads = 8, kGroups = 4, kWidth = 8;

at::Tensor values(const std::string& name, std::vector<std::int64_t> shape) {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  RandomStream(7, name).fill_normal(0, std::span(numbers), 0.0, 1.0);
  return at::from_blob(numbers.data(), shape, at::kFloat).to(type_under_test).to(at::kDouble);
}

/// Sinks with a value and room for a gradient.
struct Sinks {
  ops::Parameter parameter = {};
  Sinks() {
    parameter.shape = {kHeads};
    parameter.value = values("sinks", {kHeads});
    parameter.grad = at::zeros({kHeads}, at::kDouble);
    parameter.fresh = false;
  }
};

struct Result {
  at::Tensor out, dq, dk, dv, dsinks;
};

using Attend = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>;
Result differentiate(const Attend& attend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& gradient) {
  const auto a = ops::leaf(q), b = ops::leaf(k), c = ops::leaf(v);
  const auto out = attend(a, b, c);
  ops::run_backward(std::vector<at::Tensor>{out}, std::vector<at::Tensor>{gradient});
  return {out.detach(), a.grad(), b.grad(), c.grad(), {}};
}

void check(comm::World& world, const ops::AttentionOptions& base, int heads_ranks, parallel::KeyTransport transport,
           const std::string& what) {
  const int n = world.size(), me = world.rank();
  std::vector<int> all, heads, keys;
  for (int i = 0; i < n; ++i) {
    all.push_back(i);
    if (i / heads_ranks == me / heads_ranks) heads.push_back(i);
    if (i % heads_ranks == me % heads_ranks) keys.push_back(i);
  }
  parallel::ContextParallel context(
      {world.group(all, "all"), world.group(heads, "heads"), world.group(keys, "keys"), transport});
  const auto q = values("q", {kBatch, kTokens, kHeads, kWidth}), k = values("k", {kBatch, kTokens, kGroups, kWidth}),
             v = values("v", {kBatch, kTokens, kGroups, kWidth}), g = values("g", {kBatch, kTokens, kHeads, kWidth});
  Sinks whole_sinks, part_sinks;
  auto options = base;
  const bool sinks = base.sinks != nullptr;
  options.sinks = sinks ? &whole_sinks.parameter : nullptr;
  auto expected = differentiate(
      [&](const auto& a, const auto& b, const auto& c) { return ops::attention(a, b, c, options); }, q, k, v, g);
  options.sinks = sinks ? &part_sinks.parameter : nullptr;
  const parallel::ContextPlace place{n, me};
  const auto own = [&](const at::Tensor& x) { return parallel::own_tokens(x, place); };
  const auto here = [&](const at::Tensor& x) { return own(x).to(type_under_test); };
  part_sinks.parameter.value = part_sinks.parameter.value.to(type_under_test);
  RANK_CHECK(at::equal(context.all_tokens(own(q)), q) && at::equal(context.own_tokens(q), own(q)));
  const auto before = ops::flash_calls();
  const auto got =
      differentiate([&](const auto& a, const auto& b, const auto& c) { return context.attention(a, b, c, options); },
                    here(q), here(k), here(v), here(g));
  const auto after = ops::flash_calls();
  const bool fused = type_under_test == at::kBFloat16 && base.softcap == 0;
  // Calls of other ranks count too; a single rank with plain sequences uses PyTorch's own operation.
  if (fused && (keys.size() > 1 || base.window > 0 || base.segments.defined()))
    RANK_CHECK(after.forward > before.forward && after.backward > before.backward);
  const auto close = [&](const at::Tensor& a, const at::Tensor& b, const char* name) {
    const double difference = (a.to(at::kDouble) - b).abs().max().item<double>();
    const double largest = std::max(1.0, b.abs().max().item<double>());
    if (!(difference < (type_under_test == at::kDouble ? 1e-12 : largest / 64)))
      test::rank_check_failed(__FILE__, __LINE__, fmt::format("{}: {} differs by {:.2e}", what, name, difference));
  };
  close(got.out, own(expected.out), "the result");
  close(got.dq, own(expected.dq), "the gradient of queries");
  close(got.dk, own(expected.dk), "the gradient of keys");
  close(got.dv, own(expected.dv), "the gradient of values");
  if (!sinks) return;
  world.control().all_reduce(part_sinks.parameter.grad, comm::ReduceOp::kSum)->wait();
  close(part_sinks.parameter.grad, whole_sinks.parameter.grad, "the gradient of sinks");
}

void check_all(comm::World& world, const ops::AttentionOptions& options, const std::string& what) {
  for (int heads = 1; heads <= std::min(4, world.size()); heads *= 2)
    if (world.size() % heads == 0)
      for (const auto transport : {parallel::KeyTransport::kRing, parallel::KeyTransport::kGather})
        check(world, options, heads, transport,
              fmt::format("{}, {} of {} ranks exchange heads, {}", what, heads, world.size(),
                          transport == parallel::KeyTransport::kRing ? "ring" : "gather"));
}

ops::AttentionOptions plain() {
  return {.scale = 1 / std::sqrt(static_cast<double>(kWidth))};
}

const std::vector<test::RankCase> kCases = {
    {"causal", [](comm::World& w) { check_all(w, plain(), "causal"); }},
    {"all tokens see each other",
     [](comm::World& w) {
       auto options = plain();
       options.causal = false;
       check_all(w, options, "not causal");
     }},
    {"sliding windows shorter and longer than a chunk",
     [](comm::World& w) {
       for (const int window : {3, 7, 20}) {
         auto options = plain();
         options.window = window;
         check_all(w, options, fmt::format("window {}", window));
       }
     }},
    {"packed documents",
     [](comm::World& w) {
       auto options = plain();
       options.segments = at::zeros({kBatch, kTokens}, at::kLong);
       options.segments.narrow(0, 0, 1).narrow(1, 5, 27).fill_(1);
       options.segments.narrow(0, 0, 1).narrow(1, 21, 11).fill_(2);
       options.segments.narrow(0, 1, 1).narrow(1, 16, 16).fill_(1);
       options.documents = ops::Documents::of(options.segments);
       check_all(w, options, "documents");
       options.window = 7;
       check_all(w, options, "documents and a window");
       Sinks any;
       options.sinks = &any.parameter;
       check_all(w, options, "documents, a window and sinks");
     }},
    {"a soft cap and sinks",
     [](comm::World& w) {
       auto options = plain();
       options.softcap = 2;
       check_all(w, options, "soft cap");
       Sinks any;
       options.sinks = &any.parameter;
       options.window = 9;
       check_all(w, options, "soft cap, window and sinks");
     }},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--as-on-gpus") != 0) {
      rest.push_back(argv[i]);
      continue;
    }
    automodel::type_under_test = at::kBFloat16;
    automodel::ops::flash_on_host_with(automodel::ops::emulated_flash());
  }
  return automodel::test::run_rank_suite(static_cast<int>(rest.size()), rest.data(), automodel::kCases);
}
