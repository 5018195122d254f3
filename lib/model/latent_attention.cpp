// Multi-head latent attention (DeepSeek-V2, 2024): keys and values of all heads come from one low-rank vector per
// token, and all heads share one rotated part of the key.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/sigmoid.h>

#include "base/error.h"
#include "model/blocks.h"
#include "model/head_share.h"
#include "model/token_index.h"
#include "ops/graph.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

using arch::Part;

constexpr double kLatentNormEps = 1e-6;  // for both latent norms, regardless of rms_norm_eps

class LatentAttention : public Block {
 public:
  LatentAttention(const BlockContext& context, int layer)
      : context_(context), layer_(layer), latent_(*context.spec.latent) {
    const LayerWeights weights(context, layer);
    if (latent_.q_rank > 0) {
      q_down_ = weights.product({Part::kQueryDown});
      q_norm_ = weights.weight(Part::kQueryDownNorm);
    }
    q_up_ = weights.product({Part::kQueryUp});
    kv_down_ = weights.product({Part::kKeyValueDown});
    kv_norm_ = weights.weight(Part::kKeyValueDownNorm);
    kv_up_ = weights.product({Part::kKeyValueUp});
    if (weights.has(Part::kAttentionGate)) gate_ = weights.product({Part::kAttentionGate});
    output_ = weights.product({Part::kAttentionOut});
    heads_ = context.seams.tensor->local(context.spec.heads, *q_up_.weights[0]);
    options_.scale = context.spec.attention_scale;
    if (context.spec.index && context.spec.index->chooses(layer)) index_ = TokenIndex(context, layer);
  }

  /// The cache holds what attention needs of earlier tokens, but not what an index needs.
  bool keeps_keys() const override { return !context_.spec.index; }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    // The low-rank projections are shared by all heads, so they are computed on the residual stream's local tokens.
    auto& tensor = *context_.seams.tensor;
    const auto low_q = latent_.q_rank > 0
                           ? ops::rms_norm(tensor.tokenwise(y, drawn(q_down_, microbatch)), *q_norm_, kLatentNormEps)
                           : y;
    const auto low = ops::split(tensor.tokenwise(y, drawn(kv_down_, microbatch)), {latent_.kv_rank, latent_.rope_dim});
    if (context_.spec.index) choose(y, low_q, microbatch);
    const auto wide_q = tensor.column(low_q, drawn(q_up_, microbatch));
    const auto wide_kv = tensor.column(ops::rms_norm(low[0], *kv_norm_, kLatentNormEps), drawn(kv_up_, microbatch));
    const auto shared_key = tensor.enter(low[1]);
    const std::int64_t batch = wide_q.size(0), tokens = wide_q.size(1), nope = latent_.nope_dim,
                       rope = latent_.rope_dim;
    const auto q = ops::split(wide_q.view({batch, tokens, heads_, nope + rope}), {nope, rope});
    const auto kv = ops::split(wide_kv.view({batch, tokens, heads_, nope + latent_.v_dim}), {nope, latent_.v_dim});
    const auto key_part =
        rotated(shared_key.reshape({batch, tokens, 1, rope}), microbatch).expand({batch, tokens, heads_, rope});
    auto whole_q = at::cat({q[0], rotated(q[1], microbatch)}, -1);
    if (context_.spec.query_growth != 0) whole_q = grown(whole_q, context_.spec, microbatch.positions);
    auto out = attend(whole_q, at::cat({kv[0], key_part}, -1), kv[1], microbatch);
    if (!gate_.weights.empty()) out = out * at::sigmoid(tensor.column(y, drawn(gate_, microbatch))).unsqueeze(3);
    return tensor.row(out.reshape({batch, tokens, heads_ * latent_.v_dim}), drawn(output_, microbatch));
  }

 private:
  /// Chooses the tokens that this layer attends to, if it is one that chooses. Sequences of at most top_k tokens are
  /// seen whole.
  void choose(const at::Tensor& y, const at::Tensor& low_q, const Microbatch& microbatch) {
    const auto& index = *context_.spec.index;
    if (microbatch.length <= index.top_k) return;
    auto& tensor = *context_.seams.tensor;
    AUTOMODEL_CHECK(microbatch.choices != nullptr, "a stage keeps what its layers choose");
    if (index.chooses(layer_)) {
      const ops::NoGraph guard;
      microbatch.choices->of_layer[layer_] =
          index_.choose(tensor.enter(y.detach()), tensor.enter(low_q.detach()), microbatch);
    }
  }

  /// The choice that applies to this layer; undefined: all tokens.
  ops::ChosenKeys chosen(const Microbatch& microbatch) const {
    if (!context_.spec.index || !context_.spec.index->limits(layer_, microbatch.length)) return {};
    const auto found = microbatch.choices->of_layer.find(context_.spec.index->chooser(layer_));
    AUTOMODEL_CHECK(found != microbatch.choices->of_layer.end(), "a stage begins with a layer that chooses tokens");
    return found->second;
  }

  at::Tensor rotated(const at::Tensor& x, const Microbatch& microbatch) const {
    if (context_.rope == nullptr) return x;
    const auto angles = context_.rope->angles(microbatch.reach());
    return ops::rope(x, angles.cos, angles.sin, microbatch.positions, context_.rope->interleaved());
  }

  /// Values narrower than keys are zero-padded, because the kernels want equal widths; the padding stays zero.
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Microbatch& microbatch) const {
    auto options = options_;
    options.segments = microbatch.segments;
    options.documents = microbatch.documents;
    options.chosen = chosen(microbatch);
    const auto added = q.size(3) - v.size(3);
    const auto values = added > 0 ? at::constant_pad_nd(v, {0, added}) : v;
    if (microbatch.cache) {
      const auto out = ops::attention_after(q, microbatch.cache->extend(layer_, k, values), options);
      return added > 0 ? out.narrow(3, 0, v.size(3)) : out;
    }
    const HeadShare share(*context_.seams.context, microbatch);
    const auto of_whole_sequences = [&] {
      const auto all = share.gather(q, k, values);
      return share.scatter(ops::attention(all[0], all[1], all[2], options));
    };
    const auto out = options.chosen.defined() || !share.divided()
                         ? of_whole_sequences()
                         : context_.seams.context->attention(q, k, values, options);
    return added > 0 ? out.narrow(3, 0, v.size(3)) : out;
  }

  BlockContext context_;
  int layer_;
  arch::LatentAttention latent_;
  ops::Linear q_down_ = {}, q_up_ = {}, kv_down_ = {}, kv_up_ = {}, gate_ = {}, output_ = {};
  ops::Parameter *q_norm_ = nullptr, *kv_norm_ = nullptr;
  std::int64_t heads_ = 1;
  ops::AttentionOptions options_ = {};
  TokenIndex index_ = {};
};

}  // namespace

std::unique_ptr<Block> make_latent_attention(const BlockContext& context, int layer) {
  return std::make_unique<LatentAttention>(context, layer);
}

}  // namespace automodel::model
