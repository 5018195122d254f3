#include "ops/attention_block.h"

#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include "ops/element_type.h"

namespace automodel::ops {
namespace {

/// [batch, tokens, heads, width] -> for group member g: [batch, groups, tokens, width], a view.
at::Tensor member(const at::Tensor& x, std::int64_t groups, std::int64_t g) {
  const auto per_group = x.size(2) / groups;
  return x.unflatten(2, {groups, per_group}).select(3, g).transpose(1, 2);
}
/// [batch, tokens, heads] -> for group member g: [batch, groups, tokens], a view.
at::Tensor member_rows(const at::Tensor& x, std::int64_t groups, std::int64_t g) {
  return x.unflatten(2, {groups, x.size(2) / groups}).select(3, g).transpose(1, 2);
}

/// 0 where the mask is true. Not -inf elsewhere: a row that sees nothing must stay finite.
std::optional<at::Tensor> additive(const at::Tensor& mask, at::ScalarType type) {
  if (!mask.defined()) return std::nullopt;
  return at::zeros(mask.sizes(), mask.options().dtype(type)).masked_fill_(mask.logical_not(), kNothingSeen);
}

bool flash_serves(const at::Tensor& q, const at::Tensor& v, const BlockOptions& options) {
  return q.is_cpu() && options.softcap == 0 && q.size(-1) == v.size(-1);
}

/// The CPU's blocked kernel, once for each member of a group so that keys and values are never copied.
BlockResult flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const BlockOptions& options) {
  const auto groups = k.size(2), per_group = q.size(2) / groups;
  const auto mask = additive(options.mask, q.scalar_type());
  const auto keys = k.transpose(1, 2), values = v.transpose(1, 2);
  BlockResult result;
  if (per_group > 1) result.out = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  for (std::int64_t g = 0; g < per_group; ++g) {
    auto [out, logsum] = at::_scaled_dot_product_flash_attention_for_cpu(member(q, groups, g), keys, values, 0.0,
                                                                         options.causal && !mask, mask, options.scale);
    if (per_group > 1) {
      if (g == 0) result.logsum = at::empty({q.size(0), q.size(1), q.size(2)}, logsum.options());
      member(result.out, groups, g).copy_(out);
      member_rows(result.logsum, groups, g).copy_(logsum);
    } else {
      result.out = out.transpose(1, 2).contiguous();
      result.logsum = logsum.transpose(1, 2);
    }
  }
  return result;
}

void flash_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole, const BlockOptions& options,
                    const Qkv& results) {
  const auto& [q, k, v] = in;
  const auto& [dq, dk, dv] = results;
  const auto groups = k.size(2), per_group = q.size(2) / groups;
  const auto mask = additive(options.mask, q.scalar_type());
  const auto keys = k.transpose(1, 2), values = v.transpose(1, 2);
  const auto out = whole.out.to(q.scalar_type());
  for (std::int64_t g = 0; g < per_group; ++g) {
    auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        member(gradient, groups, g), member(q, groups, g), keys, values, member(out, groups, g),
        member_rows(whole.logsum, groups, g), 0.0, options.causal && !mask, mask, options.scale);
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

/// Every option on every device, from ATen's operations: [batch, groups, members, queries, keys].
class Composed {
 public:
  Composed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const BlockOptions& options)
      : options_(options), groups_(k.size(2)), type_(compute_type(q.scalar_type())) {
    q_ = heads(q);
    k_ = k.permute({0, 2, 1, 3}).unsqueeze(2);
    v_ = v.permute({0, 2, 1, 3}).unsqueeze(2);
    scores_ = at::matmul(q_, k_.transpose(3, 4)).to(type_) * options.scale;
    if (options.softcap > 0) scores_ = scores_.div_(options.softcap).tanh_().mul_(options.softcap);
    auto mask = options.mask;
    if (!mask.defined() && options.causal) {
      const auto integers = at::TensorOptions().dtype(at::kLong).device(q.device());
      mask = at::arange(k.size(1), integers).unsqueeze(0).le(at::arange(q.size(1), integers).unsqueeze(1));
      mask = mask.view({1, 1, q.size(1), k.size(1)});
    }
    if (mask.defined()) scores_.masked_fill_(mask.unsqueeze(2).logical_not(), kNothingSeen);
  }

  BlockResult forward() const {
    const auto logsum = at::logsumexp(scores_, -1);  // [b, g, m, t]
    const auto weights = (scores_ - logsum.unsqueeze(-1)).exp_();
    return {tokens(at::matmul(weights.to(v_.scalar_type()), v_)),
            logsum.permute({0, 3, 1, 2}).reshape({logsum.size(0), logsum.size(3), -1})};
  }

  void backward(const at::Tensor& gradient, const BlockResult& whole, const Qkv& results) {
    const auto dout = heads(gradient).to(type_), out = heads(whole.out).to(type_);
    const auto logsum = whole.logsum.unflatten(2, {groups_, -1}).permute({0, 2, 3, 1}).unsqueeze(-1);
    auto weights = (scores_ - logsum).exp_();
    results.v.copy_(at::matmul(weights.transpose(3, 4), dout).sum(2).permute({0, 2, 1, 3}));
    auto dscores = at::matmul(dout, v_.to(type_).transpose(3, 4)) - (dout * out).sum(-1, true);
    dscores.mul_(weights);
    if (options_.softcap > 0) {  // where nothing is seen the weight is 0 already
      const auto slope = 1 - (scores_ / options_.softcap).clamp_(-1, 1).square_();
      dscores.mul_(slope);
    }
    dscores.mul_(options_.scale);
    results.q.copy_(tokens(at::matmul(dscores, k_.to(type_))));
    results.k.copy_(at::matmul(dscores.transpose(3, 4), q_.to(type_)).sum(2).permute({0, 2, 1, 3}));
  }

 private:
  /// [batch, tokens, heads, width] -> [batch, groups, members, tokens, width].
  at::Tensor heads(const at::Tensor& x) const { return x.unflatten(2, {groups_, -1}).permute({0, 2, 3, 1, 4}); }
  /// And back, contiguous.
  static at::Tensor tokens(const at::Tensor& x) { return x.permute({0, 3, 1, 2, 4}).flatten(2, 3).contiguous(); }

  const BlockOptions& options_;
  std::int64_t groups_;
  at::ScalarType type_;
  at::Tensor q_, k_, v_, scores_;
};

}  // namespace

BlockResult attention_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const BlockOptions& options) {
  return flash_serves(q, v, options) ? flash(q, k, v, options) : Composed(q, k, v, options).forward();
}

void attention_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                              const BlockOptions& options, const Qkv& out) {
  if (flash_serves(in.q, in.v, options))
    flash_backward(gradient.to(in.q.scalar_type()), in, whole, options, out);
  else
    Composed(in.q, in.k, in.v, options).backward(gradient, whole, out);
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
  const auto along = (gradient.to(type) * whole.out.to(type)).sum(-1);  // [batch, queries, heads]
  return ((sinks.to(type) - whole.logsum).exp_() * along).sum(at::IntArrayRef({0, 1})).neg_();
}

}  // namespace automodel::ops
