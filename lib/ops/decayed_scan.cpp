#include "ops/decayed_scan.h"

#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/element_type.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

// Shapes below: b batch, g groups, r heads per group, n chunks, c tokens per chunk, k width of queries and keys, v
// width of values. The states of a group's heads are concatenated along v, so that one matmul serves all of them.

/// [b, g r, n, c, ...] as [b, g, r, n, c, ...].
at::Tensor by_group(const at::Tensor& x, std::int64_t groups) {
  return x.unflatten(1, {groups, x.size(1) / groups});
}
/// [b, g, r, n, c, v] to [b, g, n, c, r v].
at::Tensor side_by_side(const at::Tensor& x) {
  return x.permute({0, 1, 3, 4, 2, 5}).flatten(4, 5);
}
/// [b, g, n, c, r v] as [b, g, r, n, c, v], a view.
at::Tensor apart(const at::Tensor& x, std::int64_t heads) {
  return x.unflatten(4, {heads, x.size(4) / heads}).permute({0, 1, 4, 2, 3, 5});
}

/// One scan, cut into chunks: what its forward and backward pass share.
class Scan {
 public:
  Scan(const DecayedTokens& in, const ScanOptions& options)
      : type_(compute_type(in.values.scalar_type())),
        chunks_(in.values.size(0), in.values.size(1), options),
        groups_(in.queries.size(2)),
        heads_(in.values.size(2) / groups_),
        masks_(document_masks(chunks_, options, type_, in.values.device())),
        q_(chunks_.cut(in.queries, type_)),
        k_(chunks_.cut(in.keys, type_)),
        x_(by_group(chunks_.cut(in.values, type_), groups_)),
        decays_(chunks_.cut(in.decays, type_), masks_) {
    if (in.steps.defined()) step_ = by_group(chunks_.cut(in.steps, type_), groups_).unsqueeze(5);
    v_ = step_.defined() ? x_ * step_ : x_;
    in_ = by_group(decays_.in, groups_).unsqueeze(5);
    out_ = by_group(decays_.out, groups_).unsqueeze(5);
    sent_ = side_by_side(v_ * out_);
    factors_ = by_group(pair_factors(decays_.sum, masks_.pairs), groups_);
    scores_ = factors_ * multiply(q_, k_.transpose(3, 4)).unsqueeze(2);
    // [b, g, n, r]: decay over the chunk, for each head's columns of a state
    pass_ = by_group(decays_.pass, groups_).permute({0, 1, 3, 2});
    find_states();
  }

  void result(const at::Tensor& out) const {
    chunks_.join(multiply(scores_, v_).add_(arrived() * in_).flatten(1, 2), out);
  }

  /// Overwrites the gradients in `out`, except those of queries and keys, to which it adds because several slices may
  /// share them.
  void gradients(const at::Tensor& result_gradient, const DecayedTokens& out) const {
    const auto dy = by_group(chunks_.cut(result_gradient, type_), groups_);
    const auto dy_in = dy * in_;
    const auto asked = side_by_side(dy_in);
    const auto dstates = state_gradients(multiply(q_.transpose(3, 4), asked));
    const auto dsent = apart(multiply(k_, dstates), heads_);  // of v_ * out_
    const auto dscores = multiply(dy, v_.transpose(4, 5));
    // Through the scores: the gradient of q k^T, summed over a group's heads, and that of the decay.
    const auto dpairs = (dscores * factors_).sum(2);
    const auto by_decay = dscores * scores_;
    auto dsum = by_decay.sum(5) - by_decay.sum(4);
    // Through the states: what each token reads from the incoming state and adds to the outgoing one.
    const auto sent = (dsent * apart(sent_, heads_)).sum(5);
    dsum += (dy_in * arrived()).sum(5) - sent;
    auto last = dsum.select(4, chunks_.size - 1);
    last += sent.sum(4);
    last += (by_head(states_ * dstates) * pass_).permute({0, 1, 3, 2});
    const auto dv = multiply(scores_.transpose(4, 5), dy).add_(dsent * out_);
    chunks_.join_onto(multiply(dpairs, k_).add_(multiply(asked, states_.transpose(3, 4))), out.queries);
    chunks_.join_onto(multiply(dpairs.transpose(3, 4), q_).add_(multiply(sent_, dstates.transpose(3, 4))), out.keys);
    chunks_.join((step_.defined() ? dv * step_ : dv).flatten(1, 2), out.values);
    chunks_.join(log_gradient(dsum.flatten(1, 2)), out.decays);
    if (step_.defined()) chunks_.join((dv * x_).sum(5).flatten(1, 2), out.steps);
  }

 private:
  /// The sum over each head's part of [b, g, n, k, r v]: [b, g, n, r].
  at::Tensor by_head(const at::Tensor& x) const { return x.unflatten(4, {heads_, -1}).sum(at::IntArrayRef{3, 5}); }
  /// `pass_` of one chunk, shaped to multiply states [b, g, k, r v].
  at::Tensor pass(std::int64_t chunk) const {
    return pass_.select(2, chunk).unsqueeze(3).expand({-1, -1, -1, sent_.size(4) / heads_}).flatten(2, 3).unsqueeze(2);
  }

  /// Computes the incoming state of each chunk: [b, g, n, k, r v].
  void find_states() {
    const auto made = multiply(k_.transpose(3, 4), sent_);
    states_ = at::zeros(made.sizes(), made.options());
    for (std::int64_t n = 1; n < chunks_.count; ++n) {
      auto state = states_.select(2, n);
      state.copy_(made.select(2, n - 1));
      if (n > 1) state.addcmul_(states_.select(2, n - 1), pass(n - 1));
    }
  }

  /// Gradients of each chunk's outgoing state. `asked`: gradients of the incoming states from the tokens that read
  /// them.
  at::Tensor state_gradients(const at::Tensor& asked) const {
    auto out = at::zeros(asked.sizes(), asked.options());
    for (std::int64_t n = chunks_.count - 1; n > 0; --n) {
      auto gradient = out.select(2, n - 1);
      gradient.copy_(asked.select(2, n));
      if (n + 1 < chunks_.count) gradient.addcmul_(out.select(2, n), pass(n));
    }
    return out;
  }

  /// What each token reads from the incoming state, before its decay: [b, g, r, n, c, v].
  at::Tensor arrived() const { return apart(multiply(q_, states_), heads_); }

  at::ScalarType type_;
  Chunks chunks_;
  std::int64_t groups_, heads_;
  DocumentMasks masks_;
  at::Tensor q_, k_;  ///< [b, g, n, c, k]
  at::Tensor x_;      ///< [b, g, r, n, c, v], as v_
  Decays decays_;
  at::Tensor step_, v_, in_, out_;  ///< [b, g, r, n, c, 1 or v]
  at::Tensor sent_;                 ///< values as they enter the outgoing state: [b, g, n, c, r v]
  at::Tensor factors_, scores_;     ///< [b, g, r, n, c, c]
  at::Tensor pass_, states_;
};

/// The slice of all tensors; queries and keys are those of the heads' groups.
DecayedTokens part_of(const DecayedTokens& in, const HeadSlice& slice) {
  return {slice.of_groups(in.queries), slice.of_groups(in.keys), slice.of_heads(in.values), slice.of_heads(in.decays),
          slice.of_heads(in.steps)};
}

class DecayedScanBackward : public Backward {
 public:
  DecayedScanBackward(DecayedTokens in, ScanOptions options) : in_(std::move(in)), options_(std::move(options)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return std::vector<at::Tensor>(5);
    NoGraph guard;
    const auto type = compute_type(in_.values.scalar_type());
    const DecayedTokens out{at::zeros(in_.queries.sizes(), in_.queries.options().dtype(type)),
                            at::zeros(in_.keys.sizes(), in_.keys.options().dtype(type)),
                            at::empty(in_.values.sizes(), in_.values.options()),
                            at::empty(in_.decays.sizes(), in_.decays.options()),
                            in_.steps.defined() ? at::empty(in_.steps.sizes(), in_.steps.options()) : at::Tensor()};
    for (const auto& slice : head_slices(in_.values, in_.queries.size(2), options_))
      Scan(part_of(in_, slice), options_.of(slice)).gradients(slice.of_heads(gradients[0]), part_of(out, slice));
    return {out.queries.to(in_.queries.scalar_type()), out.keys.to(in_.keys.scalar_type()), out.values, out.decays,
            out.steps};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override {
    for (auto* each : {&in_.queries, &in_.keys, &in_.values, &in_.decays}) visit(*each);
    if (in_.steps.defined()) visit(in_.steps);
  }
  const char* name() const override { return "decayed_scan"; }

 private:
  DecayedTokens in_;
  ScanOptions options_;
};

}  // namespace

at::Tensor decayed_scan(const DecayedTokens& in, const ScanOptions& options) {
  AUTOMODEL_CHECK(in.values.size(2) % in.queries.size(2) == 0, "heads are a multiple of groups");
  DecayedTokens data;
  at::Tensor y;
  {
    NoGraph guard;
    data = {in.queries.detach(), in.keys.detach(), in.values.detach(), in.decays.detach(),
            in.steps.defined() ? in.steps.detach() : in.steps};
    y = at::empty(in.values.sizes(), in.values.options());
    for (const auto& slice : head_slices(data.values, data.queries.size(2), options))
      Scan(part_of(data, slice), options.of(slice)).result(slice.of_heads(y));
  }
  const std::vector<at::Tensor> inputs{in.queries, in.keys, in.values, in.decays, in.steps};
  if (records(inputs)) record({y}, inputs, std::make_unique<DecayedScanBackward>(std::move(data), options));
  return y;
}

}  // namespace automodel::ops
