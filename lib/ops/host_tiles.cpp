// Attention on a CPU by tiles of queries and keys (Dao et al. 2022): GEMMs take operands of the tensors' type and
// accumulate in float32; everything between them is float32.
#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "ops/attention_kernels.h"
#include "ops/element_type.h"
#include "ops/host_matmul.h"
#include "ops/kernels/kernels.h"

namespace automodel::ops {
namespace {

template <class T>
const AttentionKernels<T>& loops() {
  return pick<T>(kernels().attention_float, nullptr, kernels().attention_bfloat16);
}

constexpr std::int64_t kQueries = 128,
                       kKeys = 512;  // maximum tile size: its four matrices fit a core's L2 cache

/// Queries per tile. Smaller tiles compute fewer scores that a causal mask hides; library GEMMs need larger ones to be
/// fast.
template <class T>
std::int64_t tile_queries() {
  return has_own_matmul<T>() ? kQueries / 2 : kQueries;
}

/// One head of a tensor [batch, tokens, heads, width], contiguous in the last dimension: rows of tokens with leading
/// dimension `stride`.
template <class T>
struct Head {
  T* data;
  std::int64_t stride, width;
  Head(const at::Tensor& x, std::int64_t row, std::int64_t head)
      : data(const_cast<T*>(x.const_data_ptr<std::remove_const_t<T>>()) + row * x.stride(0) + head * x.stride(2)),
        stride(x.stride(1)),
        width(x.size(3)) {}
  T* at(std::int64_t token) const { return data + token * stride; }
  MatrixView<std::remove_const_t<T>> from(std::int64_t token, bool transposed = false) const {
    return {at(token), stride, transposed};
  }
};

/// A range of a tile's keys that one of its queries sees, relative to the tile's first key.
struct Span {
  std::int64_t begin, end;
};

/// A range of queries, and a range of the keys that at least one of them sees.
struct Tile {
  std::int64_t query, queries, key, keys;
  Span seen(std::int64_t i, const BlockOptions& options) const {
    const auto begin = std::clamp<std::int64_t>(query + i - options.before - key, 0, keys);
    return {begin, std::clamp<std::int64_t>(query + i + options.after + 1 - key, begin, keys)};
  }
};

/// Calls visit(tile) for the tiles of a range of queries, in order of keys.
template <class Visit>
void for_keys(std::int64_t query, std::int64_t queries, std::int64_t keys, const BlockOptions& options, Visit&& visit) {
  const auto first = std::max<std::int64_t>(0, query - options.before);
  const auto last = std::min(keys, query + queries + options.after);
  for (auto key = first; key < last; key += kKeys) visit(Tile{query, queries, key, std::min(kKeys, last - key)});
}

template <class T>
struct Buffer {
  at::Tensor owner;
  T* data;
  explicit Buffer(std::int64_t size)
      : owner(at::empty({size}, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value))),
        data(owner.mutable_data_ptr<T>()) {}
};

template <class T>
void clear(T* row, std::int64_t begin, std::int64_t end) {
  if (begin < end) std::fill(row + begin, row + end, T(0));
}

/// Forward pass of one tile of queries of one head.
template <class T>
struct ForwardTile {
  Buffer<float> scores, sums;
  Buffer<T> weights;
  std::vector<SoftmaxRow> rows{kQueries};
  ForwardTile(std::int64_t keys, std::int64_t width)
      : scores(kQueries * std::min(kKeys, keys)), sums(kQueries * width), weights(kQueries * std::min(kKeys, keys)) {}

  void run(const Head<const T>& q, const Head<const T>& k, const Head<const T>& v, std::int64_t query,
           std::int64_t queries, std::int64_t keys, const BlockOptions& options) {
    const auto& kernel = loops<T>();
    std::fill(rows.begin(), rows.end(), SoftmaxRow{static_cast<float>(kMaskedLogSum), 0});
    bool fresh = true;
    for_keys(query, queries, keys, options, [&](const Tile& tile) {
      host_matmul(scores.data, tile.keys, true, q.from(query), k.from(tile.key, true), queries, q.width, tile.keys);
      for (std::int64_t i = 0; i < queries; ++i) {
        const auto [begin, end] = tile.seen(i, options);
        auto* row = weights.data + i * tile.keys;
        clear(row, 0, begin);
        clear(row, end, tile.keys);
        if (begin == end) continue;
        const auto factor = kernel.weights(scores.data + i * tile.keys + begin, static_cast<float>(options.scale),
                                           rows[static_cast<std::size_t>(i)], row + begin, end - begin);
        if (!fresh && factor != 1) kernel.scale(sums.data + i * v.width, factor, v.width);
      }
      host_matmul(sums.data, v.width, fresh, MatrixView<T>{weights.data, tile.keys}, v.from(tile.key), queries,
                  tile.keys, v.width);
      fresh = false;
    });
  }
};

/// Backward pass of all queries of the heads that share keys and values.
template <class T>
struct BackwardGroup {
  const Qkv& in;
  const BlockOptions& options;
  std::int64_t queries, keys, width, value_width;
  Buffer<float> scores, dweights, dq, dk, dv;
  Buffer<T> weights, dscores;

  BackwardGroup(const Qkv& inputs, const BlockOptions& block)
      : in(inputs),
        options(block),
        queries(in.q.size(1)),
        keys(in.k.size(1)),
        width(in.k.size(3)),
        value_width(in.v.size(3)),
        scores(kQueries * std::min(kKeys, keys)),
        dweights(kQueries * std::min(kKeys, keys)),
        dq(kQueries * width),
        dk(keys * width),
        dv(keys * value_width),
        weights(kQueries * std::min(kKeys, keys)),
        dscores(kQueries * std::min(kKeys, keys)) {}

  /// Adds one head's share to dk and dv, and writes its dq. `logsum` and `dots` are those of the head's first query,
  /// and `step` elements apart.
  void add_head(const Head<const T>& q, const Head<const T>& k, const Head<const T>& v, const Head<const T>& dout,
                const float* logsum, const float* dots, std::int64_t step, const Head<T>& to) {
    const auto& kernel = loops<T>();
    const auto scale = static_cast<float>(options.scale);
    for (std::int64_t query = 0, most = tile_queries<T>(); query < queries; query += most) {
      const auto rows = std::min(most, queries - query);
      bool fresh = true;
      for_keys(query, rows, keys, options, [&](const Tile& tile) {
        host_matmul(scores.data, tile.keys, true, q.from(query), k.from(tile.key, true), rows, width, tile.keys);
        host_matmul(dweights.data, tile.keys, true, dout.from(query), v.from(tile.key, true), rows, value_width,
                    tile.keys);
        for (std::int64_t i = 0; i < rows; ++i) {
          const auto [begin, end] = tile.seen(i, options);
          const auto at = i * tile.keys;
          for (auto* row : {weights.data + at, dscores.data + at}) {
            clear(row, 0, begin);
            clear(row, end, tile.keys);
          }
          kernel.gradient(scores.data + at + begin, dweights.data + at + begin, scale, logsum[(query + i) * step],
                          dots[(query + i) * step], weights.data + at + begin, dscores.data + at + begin, end - begin);
        }
        host_matmul(dv.data + tile.key * value_width, value_width, false, MatrixView<T>{weights.data, tile.keys, true},
                    dout.from(query), tile.keys, rows, value_width);
        host_matmul(dk.data + tile.key * width, width, false, MatrixView<T>{dscores.data, tile.keys, true},
                    q.from(query), tile.keys, rows, width);
        host_matmul(dq.data, width, fresh, MatrixView<T>{dscores.data, tile.keys}, k.from(tile.key), rows, tile.keys,
                    width);
        fresh = false;
      });
      for (std::int64_t i = 0; i < rows; ++i) kernel.narrow(dq.data + i * width, 1, to.at(query + i), width);
    }
  }
};

template <class T>
BlockResult forward(const Qkv& in, const BlockOptions& options) {
  const auto& [q, k, v] = in;
  const auto batch = q.size(0), queries = q.size(1), heads = q.size(2), per_group = heads / k.size(2);
  const auto step = tile_queries<T>(), tiles = (queries + step - 1) / step, width = v.size(3);
  BlockResult result{at::empty({batch, queries, heads, width}, q.options()),
                     at::empty({batch, queries, heads}, q.options().dtype(at::kFloat))};
  float* logsum = result.logsum.mutable_data_ptr<float>();
  at::parallel_for(0, batch * heads * tiles, 1, [&](std::int64_t begin, std::int64_t end) {
    ForwardTile<T> work(k.size(1), width);
    for (auto task = begin; task < end; ++task) {
      const auto row = task / (heads * tiles), head = task / tiles % heads, query = task % tiles * step;
      const auto count = std::min(step, queries - query);
      work.run({q, row, head}, {k, row, head / per_group}, {v, row, head / per_group}, query, count, k.size(1),
               options);
      const Head<T> out(result.out, row, head);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto& [largest, sum] = work.rows[static_cast<std::size_t>(i)];
        const bool any = sum != 0;  // whether the query sees any key
        loops<T>().narrow(work.sums.data + i * width, any ? 1 / sum : 0, out.at(query + i), width);
        logsum[(row * queries + query + i) * heads + head] =
            any ? largest + std::log(sum) : static_cast<float>(kMaskedLogSum);
      }
    }
  });
  return result;
}

/// out * dout of every query and head, [batch, queries, heads]. Before the tiles, because `out` is often no longer in a
/// cache: read in the order of memory it arrives ahead of its use, and head by head it would not.
template <class T>
Buffer<float> out_dot_dout(const at::Tensor& out, const at::Tensor& dout) {
  const auto batch = out.size(0), queries = out.size(1), heads = out.size(2), width = out.size(3);
  Buffer<float> dots(batch * queries * heads);
  at::parallel_for(0, batch * queries, 16, [&](std::int64_t begin, std::int64_t end) {
    const Head<const T> a(out, 0, 0), b(dout, 0, 0);
    const auto a_row = out.stride(0), a_head = out.stride(2), b_row = dout.stride(0), b_head = dout.stride(2);
    for (auto i = begin; i < end; ++i) {
      const auto *x = a.at(i % queries) + i / queries * a_row, *y = b.at(i % queries) + i / queries * b_row;
      for (std::int64_t head = 0; head < heads; ++head, x += a_head, y += b_head)
        dots.data[i * heads + head] = loops<T>().dot(x, y, width);
    }
  });
  return dots;
}

template <class T>
void backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole, const BlockOptions& options,
              const Qkv& results) {
  const auto usable = [](const at::Tensor& x) {
    const auto narrow = x.to(c10::CppTypeToScalarType<T>::value);
    return narrow.stride(3) == 1 ? narrow : narrow.contiguous();
  };
  const auto out = usable(whole.out), dout = usable(gradient);
  const auto logsum = whole.logsum.to(at::kFloat).contiguous();
  const auto heads = in.q.size(2), groups = in.k.size(2), per_group = heads / groups;
  const auto dots = out_dot_dout<T>(out, dout);
  at::parallel_for(0, in.q.size(0) * groups, 1, [&](std::int64_t begin, std::int64_t end) {
    BackwardGroup<T> work(in, options);
    for (auto task = begin; task < end; ++task) {
      const auto row = task / groups, group = task % groups;
      std::fill_n(work.dk.data, work.keys * work.width, 0.0F);
      std::fill_n(work.dv.data, work.keys * work.value_width, 0.0F);
      for (auto head = group * per_group; head < (group + 1) * per_group; ++head)
        work.add_head({in.q, row, head}, {in.k, row, group}, {in.v, row, group}, {dout, row, head},
                      logsum.const_data_ptr<float>() + row * logsum.stride(0) + head,
                      dots.data + row * work.queries * heads + head, heads, {results.q, row, head});
      const Head<T> dk(results.k, row, group), dv(results.v, row, group);
      for (std::int64_t key = 0; key < work.keys; ++key) {
        loops<T>().narrow(work.dk.data + key * work.width, 1, dk.at(key), work.width);
        loops<T>().narrow(work.dv.data + key * work.value_width, 1, dv.at(key), work.value_width);
      }
    }
  });
}

/// Calls run<T>() for the type of these tensors; false if there is no host_matmul() for it.
template <class Run>
bool with_type(const Qkv& in, Run&& run) {
  const auto type = in.q.scalar_type();
  if (!in.q.is_cpu() || in.k.scalar_type() != type || in.v.scalar_type() != type) return false;
  if (type == at::kBFloat16 && has_host_matmul<c10::BFloat16>()) return run.template operator()<c10::BFloat16>();
  if (type == at::kFloat && has_host_matmul<float>()) return run.template operator()<float>();
  return false;
}

}  // namespace

bool tiles_supported(const Qkv& in, const BlockOptions& options) {
  const auto last = [](const at::Tensor& x) { return x.stride(3) == 1 || x.size(3) == 1; };
  return !options.mask.defined() && !options.chosen.defined() && options.softcap == 0 && last(in.q) && last(in.k) &&
         last(in.v) && with_type(in, []<class T>() { return true; });
}

bool tiles_preferred(const Qkv& in) {
  return with_type(in, []<class T>() { return has_own_matmul<T>(); });
}

BlockResult tiled_block(const Qkv& in, const BlockOptions& options) {
  BlockResult result;
  with_type(in, [&]<class T>() {
    result = forward<T>(in, options);
    return true;
  });
  return result;
}

void tiled_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                          const BlockOptions& options, const Qkv& results) {
  with_type(in, [&]<class T>() {
    backward<T>(gradient, in, whole, options, results);
    return true;
  });
}

}  // namespace automodel::ops
