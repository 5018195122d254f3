#include "ops/attention.h"

#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/rope.h"

namespace automodel::ops {
namespace {

/// [batch, tokens, heads, width] -> for group member g: [batch, groups, tokens, width], a view.
at::Tensor member(const at::Tensor& x, std::int64_t groups, std::int64_t g) {
  const auto per_group = x.size(2) / groups;
  return x.view({x.size(0), x.size(1), groups, per_group, x.size(3)}).select(3, g).transpose(1, 2);
}

/// 0 where the mask is true, -inf elsewhere.
std::optional<at::Tensor> additive(const at::Tensor& mask, at::ScalarType type) {
  if (!mask.defined()) return std::nullopt;
  return at::zeros(mask.sizes(), mask.options().dtype(type))
      .masked_fill_(mask.logical_not(), -std::numeric_limits<double>::infinity());
}

struct FlashResult {
  at::Tensor out;                  ///< [batch, tokens, heads, width], contiguous
  std::vector<at::Tensor> logsum;  ///< one for each member of a group
};

/// The CPU's blocked kernel, once for each member of a group so that keys and values are never copied.
FlashResult flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionOptions& options) {
  const auto groups = k.size(2), per_group = q.size(2) / groups;
  const auto mask = additive(attention_mask(q.size(1), options, q.device()), q.scalar_type());
  const auto keys = k.transpose(1, 2), values = v.transpose(1, 2);
  FlashResult result;
  if (per_group > 1) result.out = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  for (std::int64_t g = 0; g < per_group; ++g) {
    auto [out, logsum] = at::_scaled_dot_product_flash_attention_for_cpu(member(q, groups, g), keys, values, 0.0,
                                                                         options.causal && !mask, mask, options.scale);
    result.logsum.push_back(logsum);
    if (per_group > 1)
      member(result.out, groups, g).copy_(out);
    else
      result.out = out.transpose(1, 2).contiguous();
  }
  return result;
}

/// Gradients into dq, dk, dv (views of any stride), which are overwritten.
void flash_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const FlashResult& forward, const AttentionOptions& options, at::Tensor dq, at::Tensor dk,
                    at::Tensor dv) {
  const auto groups = k.size(2), per_group = q.size(2) / groups;
  const auto mask = additive(attention_mask(q.size(1), options, q.device()), q.scalar_type());
  const auto keys = k.transpose(1, 2), values = v.transpose(1, 2);
  for (std::int64_t g = 0; g < per_group; ++g) {
    auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        member(gradient, groups, g), member(q, groups, g), keys, values, member(forward.out, groups, g),
        forward.logsum[static_cast<std::size_t>(g)], 0.0, options.causal && !mask, mask, options.scale);
    member(dq, groups, g).copy_(gq);
    if (g == 0) {
      dk.copy_(gk.transpose(1, 2));
      dv.copy_(gv.transpose(1, 2));
    } else {
      dk.add_(gk.transpose(1, 2));
      dv.add_(gv.transpose(1, 2));
    }
  }
}

bool flash_serves(const at::Tensor& q, const at::Tensor& v, const AttentionOptions& options) {
  return q.is_cpu() && options.softcap == 0 && options.sinks == nullptr && q.size(-1) == v.size(-1);
}

class FlashBackward : public Backward {
 public:
  FlashBackward(at::Tensor q, at::Tensor k, at::Tensor v, FlashResult forward, AttentionOptions options)
      : q_(std::move(q)),
        k_(std::move(k)),
        v_(std::move(v)),
        forward_(std::move(forward)),
        options_(std::move(options)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    NoGraph guard;
    auto dq = at::empty(q_.sizes(), q_.options()), dk = at::empty(k_.sizes(), k_.options()),
         dv = at::empty(v_.sizes(), v_.options());
    flash_backward(gradients[0].contiguous(), q_, k_, v_, forward_, options_, dq, dk, dv);
    return {dq, dk, dv};
  }
  const char* name() const override { return "attention"; }

 private:
  at::Tensor q_, k_, v_;
  FlashResult forward_;
  AttentionOptions options_;
};

/// The parts of a joined projection as [batch, tokens, heads, width] views.
struct Parts {
  at::Tensor q, k, v;
};
Parts split(const at::Tensor& qkv, const JoinedHeads& layout) {
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
  RopeAttentionBackward(at::Tensor qkv, JoinedHeads layout, FlashResult forward, AttentionOptions options)
      : qkv_(std::move(qkv)), layout_(std::move(layout)), forward_(std::move(forward)), options_(std::move(options)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    auto dqkv = at::empty(qkv_.sizes(), qkv_.options());
    const auto in = split(qkv_, layout_), out = split(dqkv, layout_);
    flash_backward(gradients[0].contiguous().view(forward_.out.sizes()), in.q, in.k, in.v, forward_, options_, out.q,
                   out.k, out.v);
    rope_in_place(turned_part(dqkv, layout_), layout_.cos, layout_.sin, layout_.positions, -1);
    return {dqkv};
  }
  const char* name() const override { return "rope_attention"; }

 private:
  at::Tensor qkv_;
  JoinedHeads layout_;
  FlashResult forward_;
  AttentionOptions options_;
};

/// Every option, from ATen's operations and with autograd's own gradients.
at::Tensor composed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  const auto batch = q.size(0), tokens = q.size(1), heads = q.size(2), groups = k.size(2), per_group = heads / groups;
  const auto grouped =
      q.view({batch, tokens, groups, per_group, q.size(3)}).permute({0, 2, 3, 1, 4});  // [b, g, m, t, d]
  const auto keys = k.permute({0, 2, 3, 1}).unsqueeze(2);                              // [b, g, 1, d, t]
  auto scores = at::matmul(grouped, keys) * options.scale;
  if (options.softcap > 0) scores = at::tanh(scores / options.softcap) * options.softcap;
  auto mask = attention_mask(tokens, options, q.device());
  if (!mask.defined() && options.causal) {
    const auto index = at::arange(tokens, at::TensorOptions().dtype(at::kLong).device(q.device()));
    mask = index.unsqueeze(0).le(index.unsqueeze(1)).view({1, 1, tokens, tokens});
  }
  if (mask.defined())
    scores = scores.masked_fill(mask.unsqueeze(2).logical_not(), -std::numeric_limits<double>::infinity());
  const auto type = compute_type(q.scalar_type());
  at::Tensor weights;
  if (options.sinks != nullptr) {
    const auto sink = use(*options.sinks, q)
                          .to(scores.scalar_type())
                          .view({1, groups, per_group, 1, 1})
                          .expand({batch, groups, per_group, tokens, 1});
    weights = at::softmax(at::cat({scores, sink}, -1), -1, type).narrow(-1, 0, tokens);
  } else {
    weights = at::softmax(scores, -1, type);
  }
  const auto out = at::matmul(weights.to(v.scalar_type()), v.permute({0, 2, 1, 3}).unsqueeze(2));  // [b, g, m, t, dv]
  return out.permute({0, 3, 1, 2, 4}).reshape({batch, tokens, heads, v.size(3)});
}

/// A GPU's fused kernels, chosen by PyTorch.
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
  if (!options.segments.defined() && (options.window == 0 || options.window >= tokens)) return {};
  const auto index = at::arange(tokens, at::TensorOptions().dtype(at::kLong).device(device));
  const auto row = index.unsqueeze(1), column = index.unsqueeze(0);
  auto mask = options.causal ? column.le(row) : column.ge(0).expand({tokens, tokens});
  if (options.window > 0) {
    mask = mask.logical_and(column.gt(row - options.window));
    if (!options.causal) mask = mask.logical_and(column.lt(row + options.window));
  }
  mask = mask.view({1, 1, tokens, tokens});
  if (options.segments.defined()) {
    const auto same = options.segments.unsqueeze(2).eq(options.segments.unsqueeze(1));  // [batch, tokens, tokens]
    mask = mask.logical_and(same.unsqueeze(1));
  }
  return mask;
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  AUTOMODEL_CHECK(q.size(2) % k.size(2) == 0, "query heads are a multiple of key heads");
  if (!q.is_cpu() && options.softcap == 0 && options.sinks == nullptr) return device_attention(q, k, v, options);
  if (!flash_serves(q, v, options)) return composed(q, k, v, options);
  at::Tensor dq, dk, dv;
  FlashResult result;
  {
    NoGraph guard;
    dq = q.detach().contiguous(), dk = k.detach().contiguous(), dv = v.detach().contiguous();
    result = flash_forward(dq, dk, dv, options);
  }
  auto out = result.out;
  if (records({q, k, v})) {
    result.out = out.detach();  // an operation must not own its own result
    record({out}, {q, k, v}, std::make_unique<FlashBackward>(dq, dk, dv, std::move(result), options));
  }
  return out;
}

at::Tensor rope_attention(const at::Tensor& qkv, const JoinedHeads& layout, const AttentionOptions& options) {
  at::Tensor turned;
  {
    NoGraph guard;
    turned = qkv.detach();
    if (flash_serves(turned, turned, options))
      rope_in_place(turned_part(turned, layout), layout.cos, layout.sin, layout.positions, 1);
  }
  if (!flash_serves(turned, turned, options)) {
    const auto parts = split(qkv, layout);
    const auto q = rope(parts.q, layout.cos, layout.sin, layout.positions),
               k = rope(parts.k, layout.cos, layout.sin, layout.positions);
    return attention(q, k, parts.v, options).reshape({qkv.size(0), qkv.size(1), layout.heads * layout.width});
  }
  FlashResult result;
  at::Tensor out;
  {
    NoGraph guard;
    const auto parts = split(turned, layout);
    result = flash_forward(parts.q, parts.k, parts.v, options);
    out = result.out.view({qkv.size(0), qkv.size(1), layout.heads * layout.width});
  }
  if (records({qkv})) {
    record({out}, {qkv}, std::make_unique<RopeAttentionBackward>(turned, layout, std::move(result), options));
  }
  return out;
}

}  // namespace automodel::ops
