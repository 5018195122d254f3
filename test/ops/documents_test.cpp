// Attention per document against masked attention.
#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include "ops/attention.h"
#include "ops/attention_block.h"
#include "ops/graph.h"
#include "torch_catch.h"

namespace automodel::ops {
namespace {

constexpr std::int64_t kTokens = 24, kHeads = 4, kGroups = 2, kWidth = 8;

at::Tensor numbers_of(const std::vector<std::vector<std::int64_t>>& rows) {
  auto out = at::empty({static_cast<std::int64_t>(rows.size()), kTokens}, at::kLong);
  auto* to = out.mutable_data_ptr<std::int64_t>();
  for (const auto& row : rows) to = std::copy(row.begin(), row.end(), to);
  return out;
}

/// Documents of these lengths, numbered from 1; the remaining tokens have number 0, like padding.
std::vector<std::int64_t> row_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    out.insert(out.end(), static_cast<std::size_t>(lengths[i]), static_cast<std::int64_t>(i) + 1);
  out.resize(kTokens, 0);
  return out;
}

at::Tensor random(std::int64_t rows, std::int64_t heads) {
  return at::rand({rows, kTokens, heads, kWidth}, at::kDouble) - 0.5;
}

/// Which token sees which: bool [rows, 1, tokens, tokens].
at::Tensor mask_of(const AttentionOptions& options) {
  const auto rows = options.segments.size(0);
  auto mask = at::zeros({rows, 1, kTokens, kTokens}, at::kBool);
  const auto number = options.segments.accessor<std::int64_t, 2>();
  auto sees = mask.accessor<bool, 4>();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < kTokens; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        sees[row][0][i][j] = number[row][i] == number[row][j] && (options.window == 0 || i - j < options.window);
  return mask;
}

}  // namespace

TEST_CASE("attention over packed documents equals masked attention, forward and backward", "[ops]") {
  const std::vector<at::Tensor> packs = {
      numbers_of({row_of({24})}), numbers_of({row_of({10, 3, 11}), row_of({10, 3, 11})}),  // equal rows
      numbers_of({row_of({1, 1, 22}), row_of({7, 7}), row_of({24})}),                      // unequal rows, padding
  };
  for (const auto& segments : packs)
    for (const std::int64_t window : {0, 4})
      for (const double softcap : {0.0, 2.0})
        for (const bool sunk : {false, true}) {
          INFO(segments.size(0) << " rows, window " << window << ", softcap " << softcap << ", sinks " << sunk);
          const auto rows = segments.size(0);
          Parameter sinks{.name = "sinks", .shape = {kHeads}};
          sinks.value = at::rand({kHeads}, at::kDouble);
          sinks.grad = at::zeros({kHeads}, at::kDouble);
          const AttentionOptions options{.scale = 0.4,
                                         .window = window,
                                         .softcap = softcap,
                                         .segments = segments,
                                         .sinks = sunk ? &sinks : nullptr};
          auto q = random(rows, kHeads), k = random(rows, kGroups), v = random(rows, kGroups);
          const auto gradient = random(rows, kHeads);
          const BlockOptions masked{.scale = options.scale, .softcap = softcap, .mask = mask_of(options)};
          auto whole = attention_block(q, k, v, masked);
          if (sunk) absorb_sinks(whole, sinks.value);
          const Qkv expected{at::empty_like(q), at::empty_like(k), at::empty_like(v)};
          attention_block_backward(gradient, {q, k, v}, whole, masked, expected);
          for (auto* each : {&q, &k, &v}) *each = leaf(*each);
          const auto out = attention(q, k, v, options);
          CHECK(at::allclose(out.detach(), whole.out, 1e-12, 1e-13));
          run_backward(Origin(out), gradient);
          CHECK(at::allclose(q.grad(), expected.q, 1e-11, 1e-12));
          CHECK(at::allclose(k.grad(), expected.k, 1e-11, 1e-12));
          CHECK(at::allclose(v.grad(), expected.v, 1e-11, 1e-12));
          if (sunk) CHECK(at::allclose(sinks.grad, sinks_gradient(gradient, whole, sinks.value), 1e-11, 1e-12));
        }
}

TEST_CASE("a document in two separate pieces attends to both", "[ops]") {
  auto row = row_of({8, 8});
  std::fill(row.begin() + 16, row.end(), 1);
  const AttentionOptions options{.scale = 0.4, .segments = numbers_of({row})};
  const auto q = random(1, kHeads), k = random(1, kGroups), v = random(1, kGroups);
  const auto expected = attention_block(q, k, v, {.scale = options.scale, .mask = mask_of(options)});
  CHECK(at::allclose(attention(q, k, v, options), expected.out, 1e-12, 1e-13));
}

}  // namespace automodel::ops
