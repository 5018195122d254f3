#include "ops/delta_rule.h"

#include <cmath>
#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "ops/channel_scores.h"
#include "ops/element_type.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

// Shapes below: b batch, h heads, n chunks, c tokens per chunk, k width of queries and keys, v width of values.
//
// With G_t the sum of log decays from the chunk's start and S the incoming state, a chunk's corrections U = rate (value
// - S'^T key) solve (I + M) U = rate (V - (exp(G) K) S), M_ij = rate_i key_i exp(G_i - G_j) key_j below the diagonal
// (the WY form of Yang et al. 2024), and the outgoing state is exp(G_c) S + sum_j exp(G_c - G_j) k_j u_j^T.

/// Vectors scaled to length `scale`, and the inverse of their original length.
struct Unit {
  at::Tensor x, inverse;  ///< [..., k] and [..., 1]
  Unit(const at::Tensor& raw, double eps, double scale)
      : inverse(at::rsqrt(raw.square().sum(-1, true) + eps)), scale_(scale) {
    x = raw * (inverse * scale);
  }
  /// Gradient of the raw vectors from that of x.
  at::Tensor gradient(const at::Tensor& dx) const {
    const auto along = (dx * x).sum(-1, true) / (scale_ * scale_);
    return (dx - x * along).mul_(inverse * scale_);
  }

 private:
  double scale_;
};

/// One application, cut into chunks: what its forward and backward pass share.
class Delta {
 public:
  Delta(const DeltaTokens& in, double eps, const ScanOptions& options)
      : type_(compute_type(in.values.scalar_type())),
        chunks_(in.values.size(0), in.values.size(1), options),
        groups_(in.queries.size(2)),
        copies_(in.values.size(2) / groups_),
        channels_(in.decays.dim() == 4),
        masks_(document_masks(chunks_, options, type_, in.values.device())),
        q_(chunks_.cut(in.queries, type_), eps, 1 / std::sqrt(static_cast<double>(in.queries.size(3)))),
        k_(chunks_.cut(in.keys, type_), eps, 1),
        v_(chunks_.cut(in.values, type_)),
        rate_(chunks_.cut(in.rates, type_).unsqueeze(4)),
        decays_(chunks_.cut(in.decays, type_), masks_) {
    AUTOMODEL_CHECK(!channels_ || copies_ == 1, "heads with a decay for each channel have their own queries and keys");
    find_scores();
    const auto fit = [&](const at::Tensor& factor) { return channels_ ? factor : factor.unsqueeze(4); };
    in_ = fit(decays_.in), out_ = fit(decays_.out);
    pass_ = (channels_ ? decays_.pass : decays_.pass.unsqueeze(3)).unsqueeze(4);
    decayed_queries_ = heads(q_.x) * in_;
    decayed_keys_in_ = heads(k_.x) * in_;
    decayed_keys_out_ = heads(k_.x) * out_;
    const auto lower = (key_scores_ * rate_).tril(-1);
    solve_ = at::linalg_solve_triangular(lower, at::eye(chunks_.size, lower.options()), /*upper=*/false,
                                         /*left=*/true, /*unitriangular=*/true);
    run();
  }

  void result(const at::Tensor& out) const {
    chunks_.join(multiply(decayed_queries_, states_).add_(multiply(query_scores_, corrections_)), out);
  }

  /// Overwrites the gradients in `out`, except those of queries and keys, to which it adds because several slices may
  /// share them.
  void gradients(const at::Tensor& result_gradient, const DeltaTokens& out) const;

 private:
  /// Repeats queries or keys of groups for each of their heads: [b, h, n, c, k].
  at::Tensor heads(const at::Tensor& x) const { return copies_ == 1 ? x : x.repeat_interleave(copies_, 1); }
  /// The sum over each group's heads.
  at::Tensor groups(const at::Tensor& x) const { return copies_ == 1 ? x : x.unflatten(1, {groups_, copies_}).sum(2); }

  void find_scores() {
    if (channels_) {
      query_scores_ = channel_scores(q_.x, k_.x, decays_.sum).mul_(masks_.pairs);
      key_scores_ = channel_scores(k_.x, k_.x, decays_.sum).mul_(masks_.pairs);
      return;
    }
    factors_ = pair_factors(decays_.sum, masks_.pairs);
    const auto transposed = k_.x.transpose(3, 4);
    query_scores_ = heads(multiply(q_.x, transposed)) * factors_;
    key_scores_ = heads(multiply(k_.x, transposed)) * factors_;
  }

  /// Runs over the chunks in order: the incoming state of each, and its corrections.
  void run() {
    auto shape = v_.sizes().vec();
    corrections_ = at::empty(shape, v_.options());
    errors_ = at::empty(shape, v_.options());
    shape[3] = q_.x.size(4);
    states_ = at::zeros(shape, v_.options());
    for (std::int64_t n = 0; n < chunks_.count; ++n) {
      const auto state = states_.select(2, n);
      auto error = errors_.select(2, n), correction = corrections_.select(2, n);
      error.copy_(v_.select(2, n));
      if (n > 0) error.sub_(multiply(decayed_keys_in_.select(2, n), state));
      correction.copy_(multiply(solve_.select(2, n), error * rate_.select(2, n)));
      if (n + 1 == chunks_.count) break;
      states_.select(2, n + 1)
          .copy_(multiply(decayed_keys_out_.select(2, n).transpose(2, 3), correction))
          .addcmul_(state, pass_.select(2, n));
    }
  }

  /// Gradients from running over the chunks in reverse.
  struct Back {
    at::Tensor states;  ///< of each chunk's outgoing state
    at::Tensor solved;  ///< of rate (value - ...), the right-hand side of each chunk's corrections
  };
  Back run_back(const at::Tensor& dy) const {
    Back out{at::zeros(states_.sizes(), states_.options()), at::empty(v_.sizes(), v_.options())};
    const auto direct = multiply(query_scores_.transpose(3, 4), dy);
    const auto from_queries = multiply(decayed_queries_.transpose(3, 4), dy);
    for (std::int64_t n = chunks_.count - 1; n >= 0; --n) {
      const auto leaving = out.states.select(2, n);
      const auto du = direct.select(2, n) + multiply(decayed_keys_out_.select(2, n), leaving);
      const auto solved = multiply(solve_.select(2, n).transpose(2, 3), du);
      out.solved.select(2, n).copy_(solved);
      if (n == 0) break;
      out.states.select(2, n - 1)
          .copy_(from_queries.select(2, n))
          .addcmul_(leaving, pass_.select(2, n))
          .sub_(multiply(decayed_keys_in_.select(2, n).transpose(2, 3), solved * rate_.select(2, n)));
    }
    return out;
  }

  at::ScalarType type_;
  Chunks chunks_;
  std::int64_t groups_, copies_;
  bool channels_;
  DocumentMasks masks_;
  Unit q_, k_;           ///< [b, groups, n, c, k]
  at::Tensor v_, rate_;  ///< [b, h, n, c, v], [b, h, n, c, 1]
  Decays decays_;
  at::Tensor in_, out_, pass_;                      ///< [b, h, n, c, 1 or k], [b, h, n, 1 or k, 1]
  at::Tensor factors_, query_scores_, key_scores_;  ///< [b, h, n, c, c]; factors_ only for a decay shared by all
                                                    ///< channels
  at::Tensor decayed_queries_;                      ///< queries that read the incoming state: [b, h, n, c, k]
  at::Tensor decayed_keys_in_;                      ///< keys that read the incoming state: [b, h, n, c, k]
  at::Tensor decayed_keys_out_;                     ///< keys that write the outgoing state: [b, h, n, c, k]
  at::Tensor solve_;                                ///< inverse of I + M: [b, h, n, c, c]
  at::Tensor states_, corrections_, errors_;        ///< [b, h, n, k, v], [b, h, n, c, v] twice
};

void Delta::gradients(const at::Tensor& result_gradient, const DeltaTokens& out) const {
  const auto dy = chunks_.cut(result_gradient, type_);
  const auto back = run_back(dy);
  const auto dv = back.solved * rate_;
  const auto from_state = states_.transpose(3, 4);
  const auto ddecayed_queries = multiply(dy, from_state);
  const auto ddecayed_keys_in = multiply(dv, from_state).neg_();
  const auto ddecayed_keys_out = multiply(corrections_, back.states.transpose(3, 4));
  const auto dquery_scores = multiply(dy, corrections_.transpose(3, 4)).mul_(masks_.pairs);
  // (I + M) U = R: the gradient of M is minus the gradient of R times U^T.
  const auto dlower = multiply(back.solved, corrections_.transpose(3, 4)).tril_(-1).neg_();
  const auto drate = (dlower * key_scores_).sum(4) + (back.solved * errors_).sum(4);
  const auto dkey_scores = (dlower * rate_).mul_(masks_.pairs);

  auto dq = groups(ddecayed_queries * in_), dk = groups(ddecayed_keys_in * in_ + ddecayed_keys_out * out_);
  const auto width = [&](const at::Tensor& x) { return channels_ ? x : x.sum(4); };
  const auto from_keys_out = width(ddecayed_keys_out * decayed_keys_out_);
  auto dsum = width(ddecayed_queries * decayed_queries_ + ddecayed_keys_in * decayed_keys_in_) - from_keys_out;
  auto last = dsum.select(3, chunks_.size - 1);
  last += from_keys_out.sum(3);
  const auto kept = states_ * back.states * pass_;
  last += channels_ ? kept.sum(4) : kept.flatten(3, 4).sum(3);
  if (channels_) {
    // The factor exp(sum_i - sum_j) gives `sum` the gradient x dx at i and -k dk at j.
    auto of_q = at::zeros_like(dq), of_k = at::zeros_like(dk), of_row = at::zeros_like(dk);
    add_channel_score_gradients(dquery_scores, q_.x, k_.x, decays_.sum, of_q, of_k);
    add_channel_score_gradients(dkey_scores, k_.x, k_.x, decays_.sum, of_row, of_k);
    dsum += q_.x * of_q + k_.x * (of_row - of_k);
    dq += of_q;
    dk += of_row + of_k;
  } else {
    const auto by_decay = dquery_scores * query_scores_ + dkey_scores * key_scores_;
    dsum += by_decay.sum(4) - by_decay.sum(3);
    const auto of_queries = groups(dquery_scores * factors_), of_keys = groups(dkey_scores * factors_);
    dq += multiply(of_queries, k_.x);
    dk += multiply(of_queries.transpose(3, 4), q_.x) + multiply(of_keys + of_keys.transpose(3, 4), k_.x);
  }
  chunks_.join_onto(q_.gradient(dq), out.queries);
  chunks_.join_onto(k_.gradient(dk), out.keys);
  chunks_.join(dv, out.values);
  chunks_.join(log_gradient(dsum), out.decays);
  chunks_.join(drate, out.rates);
}

DeltaTokens part_of(const DeltaTokens& in, const HeadSlice& slice) {
  return {slice.of_groups(in.queries), slice.of_groups(in.keys), slice.of_heads(in.values), slice.of_heads(in.decays),
          slice.of_heads(in.rates)};
}

class DeltaRuleBackward : public Backward {
 public:
  DeltaRuleBackward(DeltaTokens in, double eps, ScanOptions options)
      : in_(std::move(in)), eps_(eps), options_(std::move(options)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return std::vector<at::Tensor>(5);
    NoGraph guard;
    const auto type = compute_type(in_.values.scalar_type());
    const auto like = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
    const DeltaTokens out{at::zeros(in_.queries.sizes(), in_.queries.options().dtype(type)),
                          at::zeros(in_.keys.sizes(), in_.keys.options().dtype(type)), like(in_.values),
                          like(in_.decays), like(in_.rates)};
    for (const auto& slice : head_slices(in_.values, in_.queries.size(2), options_))
      Delta(part_of(in_, slice), eps_, options_.of(slice)).gradients(slice.of_heads(gradients[0]), part_of(out, slice));
    return {out.queries.to(in_.queries.scalar_type()), out.keys.to(in_.keys.scalar_type()), out.values, out.decays,
            out.rates};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override {
    for (auto* each : {&in_.queries, &in_.keys, &in_.values, &in_.decays, &in_.rates}) visit(*each);
  }
  const char* name() const override { return "delta_rule"; }

 private:
  DeltaTokens in_;
  double eps_;
  ScanOptions options_;
};

}  // namespace

at::Tensor delta_rule(const DeltaTokens& in, double length_eps, const ScanOptions& options) {
  AUTOMODEL_CHECK(in.values.size(2) % in.queries.size(2) == 0, "heads are a multiple of groups");
  DeltaTokens data;
  at::Tensor y;
  {
    NoGraph guard;
    data = {in.queries.detach(), in.keys.detach(), in.values.detach(), in.decays.detach(), in.rates.detach()};
    y = at::empty(in.values.sizes(), in.values.options());
    for (const auto& slice : head_slices(data.values, data.queries.size(2), options))
      Delta(part_of(data, slice), length_eps, options.of(slice)).result(slice.of_heads(y));
  }
  const std::vector<at::Tensor> inputs{in.queries, in.keys, in.values, in.decays, in.rates};
  if (records(inputs)) record({y}, inputs, std::make_unique<DeltaRuleBackward>(std::move(data), length_eps, options));
  return y;
}

}  // namespace automodel::ops
