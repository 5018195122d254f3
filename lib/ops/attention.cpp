#include "ops/attention.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/log.h"
#include "ops/attention_block.h"
#include "ops/graph.h"
#include "ops/rope.h"
#include "ops/split.h"

namespace automodel::ops {
namespace {

/// Block options for attention of all queries over all keys as one block.
BlockOptions one_block(const AttentionOptions& options, at::Device device) {
  BlockOptions out{.scale = options.scale, .softcap = options.softcap};
  if (options.window > 0) out.before = out.after = options.window - 1;
  if (options.causal) out.after = 0;
  if (options.documents != nullptr)
    out.cut = &options.documents->whole(device);
  else if (options.segments.defined())
    out.mask = same_segment(options.segments, options.segments);
  out.chosen = options.chosen;
  if (!options.mask.defined()) return out;
  const auto mask = options.mask.unsqueeze(1);
  out.mask = out.mask.defined() ? out.mask.logical_and(mask) : mask;
  return out;
}

BlockResult forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  auto result = attention_block(q, k, v, one_block(options, q.device()));
  if (const auto sinks = sinks_of(options, q.size(2)); sinks.defined()) absorb_sinks(result, sinks);
  return result;
}

/// Writes the gradients of q, k and v to `out`, and accumulates that of the sinks.
void backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole, const AttentionOptions& options,
              const Qkv& out) {
  attention_block_backward(gradient, in, whole, one_block(options, in.q.device()), out);
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

/// Queries, keys and values of a joined projection, as views [batch, tokens, heads, width].
Qkv split(const at::Tensor& qkv, const JoinedHeads& layout) {
  const auto batch = qkv.size(0), tokens = qkv.size(1), width = layout.width;
  const auto view = [&](std::int64_t first, std::int64_t heads) {
    return qkv.narrow(2, first * width, heads * width).view({batch, tokens, heads, width});
  };
  return {view(0, layout.heads), view(layout.heads, layout.groups), view(layout.heads + layout.groups, layout.groups)};
}
/// Queries and keys of a joined projection as one view, since both are rotated.
at::Tensor rotated_part(const at::Tensor& qkv, const JoinedHeads& layout) {
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
    rope_in_place(rotated_part(dqkv, layout_), layout_.cos, layout_.sin, layout_.positions, -1, layout_.interleaved);
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

/// True if PyTorch's own scaled_dot_product_attention is used.
bool uses_pytorch(const at::Tensor& q, std::int64_t tokens, const AttentionShape& shape,
                  const AttentionOptions& options) {
  const bool whole = (options.window == 0 || options.window >= tokens) && !options.segments.defined() &&
                     !options.mask.defined() && !options.chosen.defined() && options.sinks == nullptr;
  return attention_kernel(q, shape, {.softcap = options.softcap}, whole) == AttentionKernel::kPyTorch;
}
/// Backward of rotated_in_place(): rotates the gradients of queries and keys back, in place if contiguous.
class RotateBackward : public Backward {
 public:
  explicit RotateBackward(JoinedHeads layout) : layout_(std::move(layout)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const auto dqkv = gradients[0].contiguous();
    rope_in_place(rotated_part(dqkv, layout_), layout_.cos, layout_.sin, layout_.positions, -1, layout_.interleaved);
    return {dqkv};
  }
  const char* name() const override { return "rotate"; }

 private:
  JoinedHeads layout_;
};
at::Tensor rotated_in_place(const at::Tensor& qkv, const JoinedHeads& layout) {
  at::Tensor out;
  {
    NoGraph guard;
    out = qkv.detach();
    rope_in_place(rotated_part(out, layout), layout.cos, layout.sin, layout.positions, 1, layout.interleaved);
  }
  if (records({qkv})) record({out}, {qkv}, std::make_unique<RotateBackward>(layout));
  return out;
}

/// Calls `attend`. If cuDNN, which PyTorch prefers on Hopper, cannot make a kernel, turns it off for the rest of the
/// process, with a warning, and calls again.
template <class Attend>
at::Tensor without_cudnn_if_it_refuses(const Attend& attend) {
  auto& context = at::globalContext();
  try {
    return attend();
  } catch (const c10::Error& error) {
    const std::string_view said = error.what_without_backtrace();
    if (!context.userEnabledCuDNNSDP() || said.find("cuDNN") == std::string_view::npos) throw;
    context.setSDPUseCuDNN(false);
    log::warning(
        fmt::format("cuDNN cannot compute attention, and flash attention is used instead: {}; 'automodel "
                    "doctor' says whether its kernels can be compiled",
                    said.substr(0, said.find('\n'))));
  }
  return attend();
}

at::Tensor pytorch_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionOptions& options) {
  return without_cudnn_if_it_refuses([&] {
    return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), std::nullopt, 0.0,
                                            options.causal, options.scale, q.size(2) != k.size(2))
        .transpose(1, 2);
  });
}

}  // namespace

at::Tensor same_segment(const at::Tensor& queries, const at::Tensor& keys) {
  return queries.unsqueeze(2).eq(keys.unsqueeze(1)).unsqueeze(1);
}

AttentionOptions with_documents(const AttentionOptions& options, const at::Tensor& q) {
  auto out = options;
  if (out.documents == nullptr && out.segments.defined() && !attends_on_device(q))
    out.documents = Documents::of(out.segments);
  return out;
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
  if (uses_pytorch(q, q.size(1), {q.size(2), k.size(2), q.size(3), v.size(3)}, options))
    return pytorch_attention(q, k, v, options);
  const auto here = with_documents(options, q);
  at::Tensor dq, dk, dv;
  BlockResult result;
  {
    NoGraph guard;
    dq = q.detach().contiguous(), dk = k.detach().contiguous(), dv = v.detach().contiguous();
    result = forward(dq, dk, dv, here);
  }
  auto out = result.out;
  if (records({q, k, v})) {
    result.out = out.detach();  // an operation must not own its own result: a reference cycle
    record({out}, {q, k, v}, std::make_unique<AttentionBackward>(dq, dk, dv, std::move(result), here));
  }
  return out;
}

at::Tensor attention_after(const at::Tensor& q, const std::pair<at::Tensor, at::Tensor>& keys_values,
                           const AttentionOptions& options) {
  const NoGraph guard;
  const auto& [k, v] = keys_values;
  const auto queries = q.size(1), keys = k.size(1);
  AUTOMODEL_CHECK(!options.segments.defined() && (options.causal || queries == keys), "a cache holds one text");
  // No earlier tokens: use the kernels for whole sequences.
  if (queries == keys) return attention(q, k, v, options);
  BlockOptions block{.scale = options.scale, .softcap = options.softcap, .after = keys - queries};
  if (options.window > 0) block.before = options.window - 1 - block.after;
  auto result = attention_block(q.contiguous(), k, v, block);
  if (const auto sinks = sinks_of(options, q.size(2)); sinks.defined()) absorb_sinks(result, sinks);
  return result.out;
}

at::Tensor rope_attention(const at::Tensor& qkv, const JoinedHeads& layout, const AttentionOptions& options) {
  if (uses_pytorch(qkv, qkv.size(1), {layout.heads, layout.groups, layout.width, layout.width}, options)) {
    const auto batch = qkv.size(0), tokens = qkv.size(1), width = layout.width;
    const std::vector<std::int64_t> widths = {layout.heads * width, layout.groups * width, layout.groups * width};
    const auto parts = split(rotated_in_place(qkv, layout), widths);
    const auto heads = [&](const at::Tensor& part) { return part.reshape({batch, tokens, -1, width}); };
    return attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), options)
        .reshape({batch, tokens, layout.heads * width});
  }
  const auto here = with_documents(options, qkv);
  BlockResult result;
  at::Tensor rotated, out;
  {
    NoGraph guard;
    rotated = qkv.detach();
    rope_in_place(rotated_part(rotated, layout), layout.cos, layout.sin, layout.positions, 1, layout.interleaved);
    const auto parts = split(rotated, layout);
    result = forward(parts.q, parts.k, parts.v, here);
    out = result.out.reshape({qkv.size(0), qkv.size(1), layout.heads * layout.width});
  }
  if (records({qkv}))
    record({out}, {qkv}, std::make_unique<RopeAttentionBackward>(rotated, layout, std::move(result), here));
  return out;
}

}  // namespace automodel::ops
