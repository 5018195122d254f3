#include "ops/attention.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/attention_block.h"
#include "ops/graph.h"
#include "ops/kernels/device.h"
#include "ops/rope.h"
#include "ops/split.h"

namespace automodel::ops {
namespace {

/// Attention of all queries over all keys is one block.
BlockOptions one_block(std::int64_t tokens, const AttentionOptions& options, at::Device device) {
  auto mask = attention_mask(tokens, options, device);
  return {.scale = options.scale, .softcap = options.softcap, .causal = options.causal, .mask = std::move(mask)};
}

/// Tokens [begin, begin + length) of `rows` sequences, which attend to each other and to no others.
struct Document {
  std::int64_t row, rows, begin, length;
};

/// The packed documents, where each of them is in one piece; none where a mask has to say who attends. Cut alike in all
/// rows they are taken together.
std::vector<Document> documents(const AttentionOptions& options, const at::Tensor& q) {
  if (!options.segments.defined() || options.chosen.defined() || !q.is_cpu()) return {};
  const auto rows = q.size(0), tokens = q.size(1);
  const auto numbers = options.segments.to(at::kLong).contiguous();
  const auto* number = numbers.const_data_ptr<std::int64_t>();
  std::vector<Document> out, first;
  bool alike = true;
  for (std::int64_t row = 0; row < rows; ++row, number += tokens) {
    std::vector<Document> here;
    std::unordered_set<std::int64_t> seen;
    for (std::int64_t begin = 0, end = 0; begin < tokens; begin = end) {
      while (end < tokens && number[end] == number[begin]) ++end;
      if (!seen.insert(number[begin]).second) return {};  // the document goes on behind another one
      here.push_back({row, 1, begin, end - begin});
    }
    if (row == 0) first = here;
    alike = alike && std::equal(here.begin(), here.end(), first.begin(), first.end(), [](const auto& a, const auto& b) {
              return a.begin == b.begin && a.length == b.length;
            });
    out.insert(out.end(), here.begin(), here.end());
  }
  if (!alike) return out;
  for (auto& each : first) each.rows = rows;
  return first;
}

at::Tensor part(const at::Tensor& x, const Document& d) {
  return x.narrow(0, d.row, d.rows).narrow(1, d.begin, d.length);
}
Qkv part(const Qkv& x, const Document& d) {
  return {part(x.q, d), part(x.k, d), part(x.v, d)};
}
AttentionOptions alone(AttentionOptions options) {
  options.segments = at::Tensor();
  return options;
}

/// One block for each document, so that the work grows with the squares of their lengths and no mask of the whole is
/// made.
BlockResult forward_documents(const Qkv& in, const std::vector<Document>& parts, const AttentionOptions& options) {
  const auto single = alone(options);
  BlockResult result;
  for (const auto& each : parts) {
    const auto [q, k, v] = part(in, each);
    auto block = attention_block(q, k, v, one_block(each.length, single, q.device()));
    if (parts.size() == 1) return block;
    if (!result.out.defined()) {
      result.out = at::empty({in.q.size(0), in.q.size(1), in.q.size(2), in.v.size(3)}, block.out.options());
      result.logsum = at::empty({in.q.size(0), in.q.size(1), in.q.size(2)}, block.logsum.options());
    }
    part(result.out, each).copy_(block.out);
    part(result.logsum, each).copy_(block.logsum);
  }
  return result;
}

BlockResult forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  const auto parts = documents(options, q);
  auto result = parts.empty() ? attention_block(q, k, v, one_block(q.size(1), options, q.device()))
                              : forward_documents({q, k, v}, parts, options);
  if (const auto sinks = sinks_of(options, q.size(2)); sinks.defined()) absorb_sinks(result, sinks);
  return result;
}

/// Gradients into `out`, which is overwritten, and to the sinks.
void backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole, const AttentionOptions& options,
              const Qkv& out) {
  const auto parts = documents(options, in.q);
  const auto single = alone(options);
  for (const auto& each : parts)
    attention_block_backward(part(gradient, each), part(in, each), {part(whole.out, each), part(whole.logsum, each)},
                             one_block(each.length, single, in.q.device()), part(out, each));
  if (parts.empty())
    attention_block_backward(gradient, in, whole, one_block(in.q.size(1), options, in.q.device()), out);
  if (const auto sinks = sinks_of(options, in.q.size(2)); sinks.defined())
    accumulate_sinks(options, sinks_gradient(gradient, whole, sinks));
}

class AttentionBackward : public Backward {
 public:
  AttentionBackward(at::Tensor q, at::Tensor k, at::Tensor v, BlockResult whole, AttentionOptions options)
      : q_(std::move(q)), k_(std::move(k)), v_(std::move(v)), whole_(std::move(whole)), options_(std::move(options)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    NoGraph guard;
    const Qkv out{at::empty(q_.sizes(), q_.options()), at::empty(k_.sizes(), k_.options()),
                  at::empty(v_.sizes(), v_.options())};
    ops::backward(gradients[0].contiguous(), {q_, k_, v_}, whole_, options_, out);
    return {out.q, out.k, out.v};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override {
    for (auto* each : {&q_, &k_, &v_, &whole_.out, &whole_.logsum}) visit(*each);
  }
  const char* name() const override { return "attention"; }

 private:
  at::Tensor q_, k_, v_;
  BlockResult whole_;
  AttentionOptions options_;
};

/// The parts of a joined projection as [batch, tokens, heads, width] views.
Qkv split(const at::Tensor& qkv, const JoinedHeads& layout) {
  const auto batch = qkv.size(0), tokens = qkv.size(1), width = layout.width;
  const auto view = [&](std::int64_t first, std::int64_t heads) {
    return qkv.narrow(2, first * width, heads * width).view({batch, tokens, heads, width});
  };
  return {view(0, layout.heads), view(layout.heads, layout.groups), view(layout.heads + layout.groups, layout.groups)};
}
/// Queries and keys together: they are turned alike.
at::Tensor turned_part(const at::Tensor& qkv, const JoinedHeads& layout) {
  const auto heads = layout.heads + layout.groups;
  return qkv.narrow(2, 0, heads * layout.width).view({qkv.size(0), qkv.size(1), heads, layout.width});
}

class RopeAttentionBackward : public Backward {
 public:
  RopeAttentionBackward(at::Tensor qkv, JoinedHeads layout, BlockResult whole, AttentionOptions options)
      : qkv_(std::move(qkv)), layout_(std::move(layout)), whole_(std::move(whole)), options_(std::move(options)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    auto dqkv = at::empty(qkv_.sizes(), qkv_.options());
    ops::backward(gradients[0].contiguous().view(whole_.out.sizes()), split(qkv_, layout_), whole_, options_,
                  split(dqkv, layout_));
    rope_in_place(turned_part(dqkv, layout_), layout_.cos, layout_.sin, layout_.positions, -1, layout_.interleaved);
    return {dqkv};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override {
    for (auto* each : {&qkv_, &whole_.out, &whole_.logsum}) visit(*each);
  }
  const char* name() const override { return "rope_attention"; }

 private:
  at::Tensor qkv_;
  JoinedHeads layout_;
  BlockResult whole_;
  AttentionOptions options_;
};

/// A GPU's fused kernels, chosen by PyTorch; they know neither soft caps nor sinks.
bool device_serves(const at::Tensor& q, const AttentionOptions& options) {
  return (!q.is_cpu() || device_kernels(q) != nullptr) && options.softcap == 0 && options.sinks == nullptr;
}
/// Turns queries and keys of a joined projection where they lie.
class TurnBackward : public Backward {
 public:
  explicit TurnBackward(JoinedHeads layout) : layout_(std::move(layout)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const auto dqkv = gradients[0].contiguous();
    rope_in_place(turned_part(dqkv, layout_), layout_.cos, layout_.sin, layout_.positions, -1, layout_.interleaved);
    return {dqkv};
  }
  const char* name() const override { return "turn"; }

 private:
  JoinedHeads layout_;
};
at::Tensor turned_in_place(const at::Tensor& qkv, const JoinedHeads& layout) {
  at::Tensor out;
  {
    NoGraph guard;
    out = qkv.detach();
    rope_in_place(turned_part(out, layout), layout.cos, layout.sin, layout.positions, 1, layout.interleaved);
  }
  if (records({qkv})) record({out}, {qkv}, std::make_unique<TurnBackward>(layout));
  return out;
}

at::Tensor device_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options) {
  const auto mask = attention_mask(q.size(1), options, q.device());
  const auto out =
      at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                       mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt, 0.0,
                                       options.causal && !mask.defined(), options.scale, q.size(2) != k.size(2));
  return out.transpose(1, 2);
}

}  // namespace

at::Tensor attention_mask(std::int64_t tokens, const AttentionOptions& options, at::Device device) {
  const bool chosen = options.chosen.defined();
  if (!options.segments.defined() && !chosen && (options.window == 0 || options.window >= tokens)) return {};
  const auto index = at::arange(tokens, at::TensorOptions().dtype(at::kLong).device(device));
  const auto mask = pair_mask(index, index, options);
  return chosen ? mask.logical_and(options.chosen.unsqueeze(1)) : mask;
}

at::Tensor pair_mask(const at::Tensor& queries, const at::Tensor& keys, const AttentionOptions& options) {
  const auto row = queries.unsqueeze(1), column = keys.unsqueeze(0);
  auto mask = options.causal ? column.le(row) : column.ge(0).expand({queries.size(0), keys.size(0)});
  if (options.window > 0) {
    mask = mask.logical_and(column.gt(row - options.window));
    if (!options.causal) mask = mask.logical_and(column.lt(row + options.window));
  }
  mask = mask.unsqueeze(0).unsqueeze(0);
  if (options.segments.defined()) {
    const auto of_queries = options.segments.index_select(1, queries), of_keys = options.segments.index_select(1, keys);
    mask = mask.logical_and(of_queries.unsqueeze(2).eq(of_keys.unsqueeze(1)).unsqueeze(1));
  }
  return mask;
}

at::Tensor sinks_of(const AttentionOptions& options, std::int64_t heads) {
  return options.sinks == nullptr ? at::Tensor() : options.sinks->value.narrow(0, options.first_sink, heads);
}

void accumulate_sinks(const AttentionOptions& options, const at::Tensor& gradient) {
  auto& sinks = *options.sinks;
  if (!sinks.trained()) return;
  auto whole = gradient;
  if (gradient.size(0) != sinks.shape[0]) {
    whole = at::zeros(sinks.shape, gradient.options());
    whole.narrow(0, options.first_sink, gradient.size(0)).copy_(gradient);
  }
  accumulate(sinks, whole);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  AUTOMODEL_CHECK(q.size(2) % k.size(2) == 0, "query heads are a multiple of key heads");
  if (device_serves(q, options)) return device_attention(q, k, v, options);
  at::Tensor dq, dk, dv;
  BlockResult result;
  {
    NoGraph guard;
    dq = q.detach().contiguous(), dk = k.detach().contiguous(), dv = v.detach().contiguous();
    result = forward(dq, dk, dv, options);
  }
  auto out = result.out;
  if (records({q, k, v})) {
    result.out = out.detach();  // an operation must not own its own result
    record({out}, {q, k, v}, std::make_unique<AttentionBackward>(dq, dk, dv, std::move(result), options));
  }
  return out;
}

at::Tensor attention_after(const at::Tensor& q, const std::pair<at::Tensor, at::Tensor>& keys_values,
                           const AttentionOptions& options) {
  AUTOMODEL_CHECK(!options.segments.defined() && options.causal, "a cache holds one text");
  const NoGraph guard;
  const auto& [k, v] = keys_values;
  const auto queries = q.size(1), keys = k.size(1);
  // Nothing came before: the kernels for whole sequences.
  if (queries == keys) return attention(q, k, v, options);
  const bool windowed = options.window > 0 && options.window < keys;
  at::Tensor mask;  // one query sees all keys
  if (queries > 1 || windowed) {
    const auto index = at::arange(keys, at::TensorOptions().dtype(at::kLong).device(q.device()));
    mask = pair_mask(index.narrow(0, keys - queries, queries), index, options);
  }
  auto result =
      attention_block(q.contiguous(), k, v,
                      {.scale = options.scale, .softcap = options.softcap, .causal = false, .mask = std::move(mask)});
  if (const auto sinks = sinks_of(options, q.size(2)); sinks.defined()) absorb_sinks(result, sinks);
  return result.out;
}

at::Tensor rope_attention(const at::Tensor& qkv, const JoinedHeads& layout, const AttentionOptions& options) {
  if (device_serves(qkv, options)) {
    const auto batch = qkv.size(0), tokens = qkv.size(1), width = layout.width;
    const std::vector<std::int64_t> widths = {layout.heads * width, layout.groups * width, layout.groups * width};
    const auto parts = split(turned_in_place(qkv, layout), widths);
    const auto heads = [&](const at::Tensor& part) { return part.reshape({batch, tokens, -1, width}); };
    return attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), options)
        .reshape({batch, tokens, layout.heads * width});
  }
  BlockResult result;
  at::Tensor turned, out;
  {
    NoGraph guard;
    turned = qkv.detach();
    rope_in_place(turned_part(turned, layout), layout.cos, layout.sin, layout.positions, 1, layout.interleaved);
    const auto parts = split(turned, layout);
    result = forward(parts.q, parts.k, parts.v, options);
    out = result.out.view({qkv.size(0), qkv.size(1), layout.heads * layout.width});
  }
  if (records({qkv}))
    record({out}, {qkv}, std::make_unique<RopeAttentionBackward>(turned, layout, std::move(result), options));
  return out;
}

}  // namespace automodel::ops
