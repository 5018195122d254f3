#include "ops/cuda/emulated_flash.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>

namespace automodel::ops {
namespace {

std::atomic<int> forwards = 0, backwards = 0, documents_taken = 0;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("fused attention: " + what);
}

/// The kernels read 16 bytes at a time, so the address and strides must be multiples of that.
void require_packs(const at::Tensor& x, const char* name) {
  const std::string of = std::string(" of ") + name;
  require(x.stride(-1) == 1, "the last dimension" + of + " is not contiguous");
  require(reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0, "the address" + of + " is no multiple of 16");
  for (std::int64_t d = 0; d + 1 < x.dim(); ++d)
    require(x.size(d) <= 1 || x.stride(d) % 8 == 0, "a stride" + of + " is no multiple of 8");
}

void require_taken(const FlashCall& call) {
  const auto type = call.q.scalar_type();
  require(type == at::kHalf || type == at::kBFloat16, "elements must have 16 bits");
  require(call.k.scalar_type() == type && call.v.scalar_type() == type, "types differ");
  const bool flat = call.starts.defined();
  const std::int64_t dims = flat ? 3 : 4, heads = dims - 2;
  for (const auto* x : {&call.q, &call.k, &call.v}) require(x->dim() == dims, "the number of dimensions");
  require_packs(call.q, "q");
  require_packs(call.k, "k");
  require_packs(call.v, "v");
  const auto width = call.q.size(-1);
  require(width % 8 == 0 && width <= 256, "the width of heads");
  require(call.k.size(-1) == width && call.v.size(-1) == width, "keys and values must be as wide as queries");
  require(call.k.sizes() == call.v.sizes(), "keys and values differ in shape");
  require(call.q.size(heads) % call.k.size(heads) == 0, "heads are no multiple of groups");
  require(call.left >= -1 && call.right >= -1, "a window has no negative end");
  require(call.q.numel() > 0 && call.k.numel() > 0, "nothing to compute");
  if (!flat) {
    require(call.q.size(0) == call.k.size(0), "batches differ");
    require(call.queries == call.q.size(1) && call.keys == call.k.size(1), "lengths are not the tensors'");
    return;
  }
  const auto& starts = call.starts;
  require(starts.scalar_type() == at::kInt, "places of documents must be int32");
  require(starts.dim() == 1 && starts.is_contiguous() && starts.size(0) >= 2, "places of documents must be a row");
  require(starts.device() == call.q.device(), "places of documents are on another device");
  const auto* at = starts.const_data_ptr<std::int32_t>();
  require(at[0] == 0 && at[starts.size(0) - 1] == call.q.size(0), "documents must cover all tokens");
  require(call.q.size(0) == call.k.size(0), "queries and keys are not the same tokens");
  require(call.queries == call.keys, "one table has one greatest length");
  for (std::int64_t i = 0; i + 1 < starts.size(0); ++i) {
    require(at[i + 1] > at[i], "an empty document");
    require(at[i + 1] - at[i] <= call.queries, "a document is longer than the greatest length");
  }
}

/// One sequence x [tokens, groups, width] as float64 [heads, tokens, width]: each group is repeated for its heads.
at::Tensor wide(const at::Tensor& x, std::int64_t heads) {
  return x.to(at::kDouble).transpose(0, 1).repeat_interleave(heads / x.size(1), 0);
}

at::Tensor scores_of(const FlashCall& call, const at::Tensor& q, const at::Tensor& k) {
  const auto queries = q.size(1), keys = k.size(1);
  const auto integers = at::TensorOptions().dtype(at::kLong);
  const auto apart =
      at::arange(keys, integers).unsqueeze(0) - at::arange(queries, integers).unsqueeze(1) - (keys - queries);
  // As in the real kernels, a window end as large as the number of keys is unlimited, even with more queries than keys;
  // but with a left end an unlimited right one becomes that number.
  const bool begins = call.left >= 0 && call.left < call.keys, ends = call.right >= 0 && call.right < call.keys;
  auto hidden = begins ? apart.lt(-call.left) : apart.ne(apart);
  if (begins || ends) hidden = hidden.logical_or(apart.gt(ends ? call.right : call.keys));
  return (at::matmul(q, k.transpose(1, 2)) * call.scale).masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

/// One sequence of a call: selects its tokens of a tensor, and its [heads, queries] of the logsums.
struct Sequence {
  const FlashCall& call;
  std::int64_t index, begin, length;
  at::Tensor of(const at::Tensor& x) const {
    return call.starts.defined() ? x.narrow(0, begin, length) : x.select(0, index);
  }
  at::Tensor logsum_of(const at::Tensor& x) const {
    return call.starts.defined() ? x.narrow(1, begin, length) : x.select(0, index);
  }
};
std::vector<Sequence> sequences(const FlashCall& call) {
  std::vector<Sequence> out;
  if (!call.starts.defined()) {
    for (std::int64_t i = 0; i < call.q.size(0); ++i) out.push_back({call, i, 0, 0});
    return out;
  }
  const auto* at = call.starts.const_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i + 1 < call.starts.size(0); ++i) out.push_back({call, i, at[i], at[i + 1] - at[i]});
  return out;
}

std::vector<std::int64_t> logsum_shape(const FlashCall& call) {
  if (call.starts.defined()) return {call.q.size(1), call.q.size(0)};
  return {call.q.size(0), call.q.size(2), call.q.size(1)};
}

std::pair<at::Tensor, at::Tensor> forward(const FlashCall& call) {
  ++forwards;
  if (call.starts.defined()) ++documents_taken;
  require_taken(call);
  auto out = at::empty_like(call.q);
  auto logsum = at::empty(logsum_shape(call), call.q.options().dtype(at::kFloat));
  const auto heads = call.q.size(-2);
  for (const auto& each : sequences(call)) {
    const auto scores = scores_of(call, wide(each.of(call.q), heads), wide(each.of(call.k), heads));
    const auto sum = at::logsumexp(scores, -1, true);
    const auto nothing = sum.eq(-std::numeric_limits<double>::infinity());
    const auto weights = (scores - sum).exp().masked_fill(nothing, 0);
    each.of(out).copy_(at::matmul(weights, wide(each.of(call.v), heads)).transpose(0, 1));
    // As in the real kernels, +infinity for a query that sees no key.
    each.logsum_of(logsum).copy_(sum.masked_fill(nothing, std::numeric_limits<double>::infinity()).squeeze(-1));
  }
  return {out, logsum};
}

std::array<at::Tensor, 3> backward(const at::Tensor& gradient, const FlashCall& call, const at::Tensor& out,
                                   const at::Tensor& logsum) {
  ++backwards;
  if (call.starts.defined()) ++documents_taken;
  require_taken(call);
  for (const auto* x : {&gradient, &out}) {
    require(x->scalar_type() == call.q.scalar_type(), "results and gradients must have the type of queries");
    require(x->sizes() == call.q.sizes(), "results and gradients must have the shape of queries");
    require_packs(*x, "results");
  }
  require(logsum.scalar_type() == at::kFloat, "logsums must be float32");
  require(logsum.sizes() == at::IntArrayRef(logsum_shape(call)) && logsum.is_contiguous(), "the layout of logsums");
  const auto heads = call.q.size(-2), groups = call.k.size(-2);
  auto dq = at::empty_like(call.q), dk = at::empty_like(call.k), dv = at::empty_like(call.v);
  const auto of_groups = [&](const at::Tensor& x) {
    return x.unflatten(0, {groups, heads / groups}).sum(1).transpose(0, 1);
  };
  for (const auto& each : sequences(call)) {
    const auto q = wide(each.of(call.q), heads), k = wide(each.of(call.k), heads), v = wide(each.of(call.v), heads);
    const auto dout = wide(each.of(gradient), heads), result = wide(each.of(out), heads);
    const auto weights = (scores_of(call, q, k) - each.logsum_of(logsum).unsqueeze(-1)).exp();
    const auto dweights = at::matmul(dout, v.transpose(1, 2)) - (dout * result).sum(-1, true);
    const auto dscores = weights * dweights * call.scale;
    each.of(dq).copy_(at::matmul(dscores, k).transpose(0, 1));
    each.of(dk).copy_(of_groups(at::matmul(dscores.transpose(1, 2), q)));
    each.of(dv).copy_(of_groups(at::matmul(weights.transpose(1, 2), dout)));
  }
  return {dq, dk, dv};
}

}  // namespace

const FlashKernels* emulated_flash() {
  static const FlashKernels kernels{.forward = forward, .backward = backward};
  return &kernels;
}

FlashCalls flash_calls() {
  return {forwards, backwards, documents_taken};
}

}  // namespace automodel::ops
