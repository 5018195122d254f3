#include "parallel/context/ring_attention.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/attention_block.h"
#include "ops/graph.h"

namespace automodel::parallel {
namespace {

using ops::BlockOptions;
using ops::BlockResult;

/// One or both of a rank's two chunks.
struct Half {
  int first = 0, count = 1;
};
constexpr Half kBoth{0, 2};

/// Queries of one rank and keys of another that are computed in one call.
struct Call {
  Half queries, keys;
  BlockOptions options;
};

/// The two chunks of each rank, and which of them see each other.
class Chunks {
 public:
  Chunks(const comm::Communicator& group, std::int64_t tokens, const ops::AttentionOptions& options, at::Device device)
      : ranks_(group.size()), size_(tokens / 2), options_(options), device_(device) {
    AUTOMODEL_CHECK(tokens % 2 == 0, "a context-parallel rank has two chunks");
  }
  at::Tensor part(const at::Tensor& x, Half half) const { return x.narrow(1, half.first * size_, half.count * size_); }

  /// What queries of rank `me` see of keys of rank `other`. Without windows and documents this is one call: a rank's
  /// own chunks are in order, so that its first and last are a causal sequence; of an earlier rank all queries see the
  /// first chunk and none the last, and of a later rank the last queries see both. That saves more than half of the
  /// calls, and of the joins, which pass over the result in float32.
  std::vector<Call> calls(int me, int other) const {
    const bool plain = options_.window <= 0 && options_.documents == nullptr && !options_.segments.defined();
    if (plain) {
      Call whole{kBoth, kBoth, {.scale = options_.scale, .softcap = options_.softcap}};
      if (options_.causal && other == me) whole.options.after = 0;
      if (options_.causal && other < me) whole.keys = {0, 1};
      if (options_.causal && other > me) whole.queries = {1, 1};
      return {whole};
    }
    std::vector<Call> out;
    for (int a = 0; a < 2; ++a)
      for (int b = 0; b < 2; ++b) {
        BlockOptions block;
        if (sees(me, a, other, b, block)) out.push_back({{a, 1}, {b, 1}, block});
      }
    return out;
  }

 private:
  /// Sets the block options for queries of half `a` of rank `me` and keys of half `b` of rank `other`; false if none of
  /// them see each other.
  bool sees(int me, int a, int other, int b, BlockOptions& out) const {
    const auto query = number(me, a), key = number(other, b);
    const auto ahead = (query - key) * size_;  // distance from the first key to the first query
    out = {.scale = options_.scale, .softcap = options_.softcap};
    if (options_.window > 0) {
      out.before = options_.window - 1 - ahead;
      out.after = options_.window - 1 + ahead;
    }
    if (options_.causal) out.after = ahead;
    if (out.before <= -size_ || out.after <= -size_) return false;
    if (options_.documents != nullptr) {
      out.cut = &options_.documents->cut(query * size_, key * size_, size_, device_);
      return !out.cut->pieces.empty();
    }
    if (options_.segments.defined())
      out.mask = ops::same_segment(options_.segments.narrow(1, query * size_, size_),
                                   options_.segments.narrow(1, key * size_, size_));
    return true;
  }
  std::int64_t number(int rank, int half) const { return half == 0 ? rank : 2 * ranks_ - 1 - rank; }

  int ranks_;
  std::int64_t size_;
  const ops::AttentionOptions& options_;
  at::Device device_;
};

/// One round of the ring exchange; received tensors are valid after wait().
class Round {
 public:
  explicit Round(comm::Communicator& group) : group_(group) {}
  /// Sends `mine` to the next rank and receives those of the previous one. `tag` distinguishes rounds in flight.
  void start(std::vector<at::Tensor> mine, int tag) {
    const int n = group_.size(), next = (group_.rank() + 1) % n, before = (group_.rank() + n - 1) % n;
    arrived_.clear();
    std::vector<comm::Transfer> sends, receives;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      arrived_.push_back(at::empty(mine[i].sizes(), mine[i].options()));
      sends.push_back({mine[i], next, tag + static_cast<int>(i)});
      receives.push_back({arrived_.back(), before, tag + static_cast<int>(i)});
    }
    work_ = group_.exchange(std::move(sends), std::move(receives));
  }
  const std::vector<at::Tensor>& wait() {
    if (work_) work_->wait();
    work_.reset();
    return arrived_;
  }

 private:
  comm::Communicator& group_;
  std::vector<at::Tensor> arrived_ = {};
  comm::WorkPtr work_ = {};
};
constexpr int kKeyTag = 0, kGradientTag = 2;

at::Tensor gather(comm::Communicator& group, const at::Tensor& x) {
  auto shape = x.sizes().vec();
  shape.insert(shape.begin(), group.size());
  auto all = at::empty(shape, x.options());
  group.all_gather(all, x)->wait();
  return all;
}

/// Calls `use(rank, k, v)` once for every rank's keys and values, this rank's own first.
template <class Use>
void visit(comm::Communicator& group, const at::Tensor& k, const at::Tensor& v, KeyTransport transport, Use&& use) {
  const int n = group.size(), me = group.rank();
  if (transport == KeyTransport::kGather) {
    const auto keys = gather(group, k), values = gather(group, v);
    for (int i = 0; i < n; ++i) {
      const int other = (me + n - i) % n;
      use(other, keys[other], values[other]);
    }
    return;
  }
  Round round(group);
  auto key = k, value = v;
  for (int i = 0; i < n; ++i) {
    if (i + 1 < n) round.start({key, value}, kKeyTag);
    use((me + n - i) % n, key, value);
    if (i + 1 == n) break;
    const auto arrived = round.wait();
    key = arrived[0], value = arrived[1];
  }
}

BlockResult forward(comm::Communicator& group, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::AttentionOptions& options, KeyTransport transport) {
  const Chunks chunks(group, q.size(1), options, q.device());
  BlockResult whole;
  bool begun[2] = {};
  visit(group, k, v, transport, [&](int other, const at::Tensor& key, const at::Tensor& value) {
    for (const auto& [queries, keys, block] : chunks.calls(group.rank(), other)) {
      const auto result =
          ops::attention_block(chunks.part(q, queries), chunks.part(key, keys), chunks.part(value, keys), block);
      if (!whole.out.defined()) {
        const auto& exact = result.logsum.options();
        whole = {at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, exact),
                 at::empty(q.sizes().slice(0, 3), exact)};
      }
      BlockResult here{chunks.part(whole.out, queries), chunks.part(whole.logsum, queries)};
      if (begun[queries.first]) {
        ops::join_block(here, result);
      } else {
        here.out.copy_(result.out);
        here.logsum.copy_(result.logsum);
      }
      for (int half = 0; half < queries.count; ++half) begun[queries.first + half] = true;
    }
  });
  if (const auto sinks = ops::sinks_of(options, q.size(2)); sinks.defined()) ops::absorb_sinks(whole, sinks);
  return whole;
}

/// Gradients from this rank's queries: dq, and contributions to those of any rank's keys and values.
class Gradients {
 public:
  Gradients(const Chunks& chunks, int me, const at::Tensor& gradient, const at::Tensor& q, const BlockResult& whole)
      : chunks_(chunks),
        me_(me),
        gradient_(gradient),
        q_(q),
        whole_(whole),
        dq(at::zeros(q.sizes(), q.options().dtype(whole.logsum.scalar_type()))) {}

  std::pair<at::Tensor, at::Tensor> add(int other, const at::Tensor& k, const at::Tensor& v) {
    auto dk = at::zeros(k.sizes(), dq.options()), dv = at::zeros(v.sizes(), dq.options());
    for (const auto& [queries, keys, block] : chunks_.calls(me_, other)) {
      const auto query = chunks_.part(q_, queries), key = chunks_.part(k, keys), value = chunks_.part(v, keys);
      const BlockResult result{chunks_.part(whole_.out, queries), chunks_.part(whole_.logsum, queries)};
      const ops::Qkv out{at::empty(query.sizes(), query.options()), at::empty(key.sizes(), key.options()),
                         at::empty(value.sizes(), value.options())};
      ops::attention_block_backward(chunks_.part(gradient_, queries), {query, key, value}, result, block, out);
      chunks_.part(dq, queries).add_(out.q);
      chunks_.part(dk, keys).add_(out.k);
      chunks_.part(dv, keys).add_(out.v);
    }
    return {dk, dv};
  }

 private:
  const Chunks& chunks_;
  int me_;
  const at::Tensor &gradient_, &q_;
  const BlockResult& whole_;

 public:
  at::Tensor dq;
};

/// Gradients of keys and values follow them around the ring, one step behind, and end up on the rank that owns the
/// keys.
std::pair<at::Tensor, at::Tensor> ring_backward(comm::Communicator& group, const at::Tensor& k, const at::Tensor& v,
                                                Gradients& gradients) {
  Round sums(group);
  bool first = true;
  visit(group, k, v, KeyTransport::kRing, [&](int other, const at::Tensor& key, const at::Tensor& value) {
    auto [dk, dv] = gradients.add(other, key, value);
    if (!first) {
      const auto so_far = sums.wait();
      dk.add_(so_far[0]);
      dv.add_(so_far[1]);
    }
    first = false;
    sums.start({dk, dv}, kGradientTag);
  });
  const auto& home = sums.wait();
  return {home[0], home[1]};
}

std::pair<at::Tensor, at::Tensor> gather_backward(comm::Communicator& group, const at::Tensor& k, const at::Tensor& v,
                                                  Gradients& gradients) {
  std::vector<at::Tensor> keys(static_cast<std::size_t>(group.size())), values = keys;
  visit(group, k, v, KeyTransport::kGather, [&](int other, const at::Tensor& key, const at::Tensor& value) {
    const auto index = static_cast<std::size_t>(other);
    std::tie(keys[index], values[index]) = gradients.add(other, key, value);
  });
  auto dk = at::empty(k.sizes(), keys[0].options()), dv = at::empty(v.sizes(), keys[0].options());
  const auto all_keys = at::cat(keys), all_values = at::cat(values);
  group.reduce_scatter(dk, all_keys, comm::ReduceOp::kSum)->wait();
  group.reduce_scatter(dv, all_values, comm::ReduceOp::kSum)->wait();
  return {dk, dv};
}

class RingAttentionBackward : public ops::Backward {
 public:
  RingAttentionBackward(comm::Communicator& group, at::Tensor q, at::Tensor k, at::Tensor v, BlockResult whole,
                        ops::AttentionOptions options, KeyTransport transport)
      : group_(group),
        q_(std::move(q)),
        k_(std::move(k)),
        v_(std::move(v)),
        whole_(std::move(whole)),
        options_(std::move(options)),
        transport_(transport) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    AUTOMODEL_CHECK(gradients[0].defined(), "ranks would disagree about an exchange");
    ops::NoGraph guard;
    const auto gradient = gradients[0].contiguous();
    const Chunks chunks(group_, q_.size(1), options_, q_.device());
    Gradients sums(chunks, group_.rank(), gradient, q_, whole_);
    const auto [dk, dv] =
        transport_ == KeyTransport::kRing ? ring_backward(group_, k_, v_, sums) : gather_backward(group_, k_, v_, sums);
    if (const auto sinks = ops::sinks_of(options_, q_.size(2)); sinks.defined())
      ops::accumulate_sinks(options_, ops::sinks_gradient(gradient, whole_, sinks));
    const auto type = q_.scalar_type();
    return {sums.dq.to(type), dk.to(type), dv.to(type)};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override {
    for (auto* each : {&q_, &k_, &v_, &whole_.out, &whole_.logsum}) visit(*each);
  }
  const char* name() const override { return "ring_attention"; }

 private:
  comm::Communicator& group_;
  at::Tensor q_, k_, v_;
  BlockResult whole_;
  ops::AttentionOptions options_;
  KeyTransport transport_;
};

}  // namespace

at::Tensor ring_attention(comm::Communicator& group, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const ops::AttentionOptions& given, KeyTransport transport) {
  const auto options = ops::with_documents(given, q);
  at::Tensor queries, keys, values, out;
  BlockResult whole;
  {
    ops::NoGraph guard;
    queries = q.detach().contiguous(), keys = k.detach().contiguous(), values = v.detach().contiguous();
    whole = forward(group, queries, keys, values, options, transport);
    whole.out = whole.out.to(q.scalar_type());  // kept once: also what one rank's backward pass has
    out = whole.out.alias();
  }
  if (ops::records({q, k, v}))
    ops::record(
        {out}, {q, k, v},
        std::make_unique<RingAttentionBackward>(group, queries, keys, values, std::move(whole), options, transport));
  return out;
}

}  // namespace automodel::parallel
