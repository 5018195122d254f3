#include "ops/attention_block.h"

#include <algorithm>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>

#include "base/score_chunk.h"
#include "ops/attention_kernels.h"
#include "ops/element_type.h"
#include "ops/flash_attention.h"
#include "ops/kernels/device.h"

namespace automodel::ops {
namespace {

AttentionShape shape_of(const Qkv& in) {
  return {in.q.size(2), in.k.size(2), in.q.size(3), in.v.size(3), in.q.size(1), in.k.size(1)};
}

BlockResult nothing(const at::Tensor& q, const at::Tensor& v) {
  const auto type = q.options().dtype(compute_type(q.scalar_type()));
  return {at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options()),
          at::full({q.size(0), q.size(1), q.size(2)}, kMaskedLogSum, type)};
}

/// Slices of queries (or their results), of keys (or values), and of options, to a piece; offsets become relative to
/// its start.
at::Tensor queries_of(const at::Tensor& x, const Piece& p) {
  return x.narrow(0, p.row, p.rows).narrow(1, p.query, p.queries);
}
at::Tensor keys_of(const at::Tensor& x, const Piece& p) {
  return x.narrow(0, p.row, p.rows).narrow(1, p.key, p.keys);
}
Qkv part(const Qkv& x, const Piece& p) {
  return {queries_of(x.q, p), keys_of(x.k, p), keys_of(x.v, p)};
}
BlockResult part(const BlockResult& x, const Piece& p) {
  return {queries_of(x.out, p), queries_of(x.logsum, p)};
}
BlockOptions part(BlockOptions options, const Piece& p) {
  options.cut = nullptr;
  options.before += p.key - p.query;
  options.after += p.query - p.key;
  options.chosen = options.chosen.part(p);
  if (!options.mask.defined()) return options;
  if (options.mask.size(0) > 1) options.mask = options.mask.narrow(0, p.row, p.rows);
  options.mask = options.mask.narrow(2, p.query, p.queries).narrow(3, p.key, p.keys);
  return options;
}

/// The range of queries that see a key of the block, and of keys seen by one of them; nullopt if there are none.
std::optional<Piece> reached(const Qkv& in, const BlockOptions& options) {
  const auto queries = in.q.size(1), keys = in.k.size(1);
  Piece out{.row = 0,
            .rows = in.q.size(0),
            .query = std::max<std::int64_t>(0, -options.after),
            .key = std::max<std::int64_t>(0, -options.before)};
  out.queries = std::min(queries, keys + options.before) - out.query;
  out.keys = std::min(keys, queries + options.after) - out.key;
  if (out.queries <= 0 || out.keys <= 0 || options.before + options.after < 0) return std::nullopt;
  return out;
}
bool all(const Qkv& in, const Piece& p) {
  return p.rows == in.q.size(0) && p.queries == in.q.size(1) && p.keys == in.k.size(1);
}

/// True if all documents, of varying length, can be computed by one call.
bool in_one_call(const Qkv& in, const BlockOptions& options) {
  return options.cut->starts.defined() && options.before >= 0 && options.after >= 0 &&
         attention_kernel(in.q, shape_of(in), options) == AttentionKernel::kFlash;
}

/// The pieces to be computed one after another.
std::vector<Piece> pieces_of(const Qkv& in, const BlockOptions& options) {
  if (options.cut != nullptr) return options.cut->pieces;
  const auto one = reached(in, options);
  return one ? std::vector{*one} : std::vector<Piece>{};
}

/// The results of pieces that contain different queries.
BlockResult in_pieces(const Qkv& in, const BlockOptions& options, const std::vector<Piece>& pieces,
                      BlockResult (*compute)(const Qkv&, const BlockOptions&)) {
  auto result = nothing(in.q, in.v);
  for (const auto& piece : pieces) {
    const auto block = compute(part(in, piece), part(options, piece));
    const auto to = part(result, piece);
    to.out.copy_(block.out);
    to.logsum.copy_(block.logsum);
  }
  return result;
}

BlockResult computed(const Qkv& in, const BlockOptions& options) {
  const auto kernel = attention_kernel(in.q, shape_of(in), options);
  if (kernel == AttentionKernel::kHost && masks_on_host(in, options))
    if (const auto chunks = query_chunks(in, options, in.q.size(0)); chunks.size() > 1)
      return in_pieces(in, options, chunks, host_block);
  return kernel == AttentionKernel::kFlash  ? flash_block(in, options)
         : kernel == AttentionKernel::kHost ? host_block(in, options)
                                            : composed_block(in, options);
}

/// host_block_backward() of chunks of queries. Chunks see the same keys, whose gradients are summed in at least
/// float32.
void chunked_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole, const BlockOptions& options,
                      const std::vector<Piece>& chunks, const Qkv& out) {
  const auto wide = in.q.options().dtype(compute_type(in.q.scalar_type()));
  const auto dk = at::zeros(in.k.sizes(), wide), dv = at::zeros(in.v.sizes(), wide);
  for (const auto& chunk : chunks) {
    const auto here = part(in, chunk);
    const Qkv to{queries_of(out.q, chunk), at::empty_like(here.k), at::empty_like(here.v)};
    host_block_backward(queries_of(gradient, chunk), here, part(whole, chunk), part(options, chunk), to);
    keys_of(dk, chunk).add_(to.k);
    keys_of(dv, chunk).add_(to.v);
  }
  out.k.copy_(dk);
  out.v.copy_(dv);
}

void compute_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole, const BlockOptions& options,
                      const Qkv& out) {
  const auto kernel = attention_kernel(in.q, shape_of(in), options);
  if (kernel == AttentionKernel::kHost && masks_on_host(in, options))
    if (const auto chunks = query_chunks(in, options, in.q.size(0)); chunks.size() > 1)
      return chunked_backward(gradient, in, whole, options, chunks, out);
  if (kernel == AttentionKernel::kFlash)
    flash_block_backward(gradient, in, whole, options, out);
  else if (kernel == AttentionKernel::kHost)
    host_block_backward(gradient, in, whole, options, out);
  else
    composed_block_backward(gradient, in, whole, options, out);
}

}  // namespace

bool attends_on_device(const at::Tensor& x) {
  return !x.is_cpu() || device_kernels(x) != nullptr || flash_kernels(x) != nullptr;
}

AttentionKernel attention_kernel(const at::Tensor& x, const AttentionShape& shape, const BlockOptions& options,
                                 bool whole) {
  const bool plain = options.softcap == 0 && !options.mask.defined() && !options.chosen.defined();
  const bool one_width = shape.width == shape.value_width;
  if (!attends_on_device(x))
    return options.softcap == 0 && one_width ? AttentionKernel::kHost : AttentionKernel::kComposed;
  if (!plain || std::max(shape.width, shape.value_width) > kWidestFusedHead) return AttentionKernel::kComposed;
  const bool narrow = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  // PyTorch has no fused kernel for float64, nor for float32 with grouped key heads.
  const bool fused = narrow || (x.scalar_type() == at::kFloat && shape.heads == shape.groups);
  if (whole && one_width && fused) return AttentionKernel::kPyTorch;
  if (flash_kernels(x) == nullptr) return AttentionKernel::kComposed;
  // The fused passes treat a right window of `keys` or more as unlimited, and, beside a left one, an unlimited one as
  // one of `keys`. Blocks with more queries than keys for which either hides or shows a key too many cannot use them.
  const bool begins = options.before < shape.queries - 1, ends = options.after < shape.keys - 1;
  const bool lost = ends ? options.after + shape.queries >= 2 * shape.keys : begins && shape.queries > shape.keys + 1;
  return lost ? AttentionKernel::kComposed : AttentionKernel::kFlash;
}

at::Tensor visibility_mask(const BlockOptions& options, std::int64_t query, std::int64_t queries, std::int64_t key,
                           std::int64_t keys, at::Device device) {
  at::Tensor mask;
  const bool begins = query + queries - 1 - options.before > key, ends = query + options.after < key + keys - 1;
  if (begins || ends) {
    const auto integers = at::TensorOptions().dtype(at::kLong).device(device);
    const auto row = at::arange(query, query + queries, integers).unsqueeze(1);
    const auto column = at::arange(key, key + keys, integers).unsqueeze(0);
    if (begins) mask = column.ge(row - options.before);
    if (ends) {
      const auto below = column.le(row + options.after);
      mask = mask.defined() ? mask.logical_and(below) : below;
    }
    mask = mask.view({1, 1, queries, keys});
  }
  const auto limit = [&](const at::Tensor& more) { mask = mask.defined() ? mask.logical_and(more) : more; };
  if (options.mask.defined()) limit(options.mask.narrow(2, query, queries).narrow(3, key, keys));
  if (options.chosen.defined()) limit(options.chosen.mask(query, queries, key, keys));
  return mask;
}

std::vector<Piece> query_chunks(const Qkv& in, const BlockOptions& options, std::int64_t heads) {
  const auto queries = in.q.size(1), keys = in.k.size(1);
  const auto reach = std::min(keys, options.before + 1 + options.after);
  const auto most = score_rows(heads, queries, keys, reach, in.q.is_cpu());
  std::vector<Piece> out;
  for (std::int64_t query = 0; query < queries; query += most) {
    const auto count = std::min(most, queries - query);
    const auto key = std::clamp<std::int64_t>(query - options.before, 0, keys - 1);
    const auto end = std::clamp<std::int64_t>(query + count + options.after, key + 1, keys);
    out.push_back({.row = 0, .rows = in.q.size(0), .query = query, .queries = count, .key = key, .keys = end - key});
  }
  return out;
}

BlockResult attention_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const BlockOptions& options) {
  const Qkv in{q, k, v};
  if (options.cut != nullptr && in_one_call(in, options)) return flash_block(in, options);
  const auto pieces = pieces_of(in, options);
  if (pieces.size() == 1 && all(in, pieces.front())) {
    if (options.cut == nullptr) return computed(in, options);
    auto uncut = options;
    uncut.cut = nullptr;
    return attention_block(q, k, v, uncut);
  }
  return in_pieces(
      in, options, pieces, options.cut == nullptr ? computed : [](const Qkv& here, const BlockOptions& uncut) {
        return attention_block(here.q, here.k, here.v, uncut);
      });
}

void attention_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                              const BlockOptions& options, const Qkv& out) {
  if (options.cut != nullptr && in_one_call(in, options))
    return flash_block_backward(gradient, in, whole, options, out);
  const auto pieces = pieces_of(in, options);
  const bool covered =
      options.cut != nullptr ? options.cut->starts.defined() : pieces.size() == 1 && all(in, pieces.front());
  if (!covered)
    for (const auto* each : {&out.q, &out.k, &out.v}) each->zero_();
  for (const auto& piece : pieces) {
    const auto compute = options.cut != nullptr ? attention_block_backward : compute_backward;
    compute(queries_of(gradient, piece), part(in, piece), part(whole, piece), part(options, piece), part(out, piece));
  }
}

void join_block(BlockResult& sum, const BlockResult& block) {
  const auto total = at::logaddexp(sum.logsum, block.logsum);
  sum.out.mul_((sum.logsum - total).exp_().unsqueeze(-1));
  sum.out.addcmul_(block.out.to(sum.out.scalar_type()),
                   (block.logsum - total).exp_().unsqueeze(-1).to(sum.out.scalar_type()));
  sum.logsum.copy_(total);
}

void absorb_sinks(BlockResult& whole, const at::Tensor& sinks) {
  const auto total = at::logaddexp(whole.logsum, sinks.to(whole.logsum.scalar_type()));
  whole.out = whole.out * (whole.logsum - total).exp_().unsqueeze(-1).to(whole.out.scalar_type());
  whole.logsum = total;
}

at::Tensor sinks_gradient(const at::Tensor& gradient, const BlockResult& whole, const at::Tensor& sinks) {
  const auto type = whole.logsum.scalar_type();
  const auto out_dot_dout = (gradient.to(type) * whole.out.to(type)).sum(-1);  // [batch, queries, heads]
  return ((sinks.to(type) - whole.logsum).exp_() * out_dot_dout).sum(at::IntArrayRef({0, 1})).neg_();
}

}  // namespace automodel::ops
