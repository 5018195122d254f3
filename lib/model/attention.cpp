#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include "base/error.h"
#include "model/block_index.h"
#include "model/blocks.h"
#include "model/head_norm.h"
#include "model/head_share.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/rope.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

using arch::Part;

/// The rotation of a microbatch's tokens.
PlacedAngles angles_of(RopeTable& table, const Microbatch& microbatch) {
  if (microbatch.placed) return *microbatch.placed;
  const auto angles = table.angles(microbatch.reach());
  return {angles.cos, angles.sin, microbatch.positions};
}

/// Separate queries, keys and values [batch, tokens, heads, width].
struct Heads {
  at::Tensor q, k, v;
  at::Tensor gate = {};  ///< for the attention output; undefined: no gate
};

class Attention : public Block {
 public:
  Attention(const BlockContext& context, int layer)
      : context_(context),
        spec_(context.spec),
        layer_(layer),
        width_(spec_.head_dim_of(layer)),
        value_width_(spec_.value_dim_of(layer)),
        table_(!spec_.has_rope(layer) ? nullptr
               : spec_.slides(layer)  ? context.sliding_rope
                                      : context.rope) {
    const LayerWeights weights(context, layer);
    project_ = weights.product({Part::kQkv, Part::kQuery, Part::kKey, Part::kValue});
    output_ = weights.product({Part::kAttentionOut});
    const auto& first = *project_.weights[0];
    heads_ = context.seams.tensor->local(spec_.heads_of(layer), first);
    groups_ = context.seams.tensor->local(spec_.kv_heads_of(layer), first);
    borrows_ = !spec_.has_keys(layer);
    values_are_keys_ = spec_.has_full_heads(layer) && spec_.full_heads->values_are_keys;
    if (spec_.head_norm) {
      query_norm_ = HeadNorm(context, weights, Part::kQueryNorm, spec_.heads_of(layer), first);
      if (!borrows_) key_norm_ = HeadNorm(context, weights, Part::kKeyNorm, spec_.kv_heads_of(layer), first);
    }
    blocks_ = !weights.has(Part::kQkv) || spec_.qkv_order == arch::QkvOrder::kBlocks;
    options_.scale = spec_.attention_scale > 0 ? spec_.attention_scale : 1 / std::sqrt(static_cast<double>(width_));
    if (spec_.scale_by_layer) options_.scale /= layer + 1;
    options_.window = spec_.slides(layer) ? spec_.sliding_window : 0;
    options_.softcap = spec_.attention_softcap;
    options_.sinks = weights.weight(Part::kSinks);
    if (weights.has(Part::kAttentionGate)) scale_ = weights.product({Part::kAttentionGate});
    chooses_ = spec_.index && spec_.index->chooses(layer);
    if (chooses_) index_ = BlockIndex(context, layer);
  }

  /// The cache holds what attention needs of earlier tokens, but not what an index needs.
  bool keeps_keys() const override { return spec_.layers_without_keys == 0 && !spec_.index; }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const auto qkv = context_.seams.tensor->column(y, drawn(project_, microbatch));
    auto options = options_;
    options.segments = microbatch.segments;
    options.documents = microbatch.documents;
    const auto masks = microbatch.masks ? *microbatch.masks : PictureMasks();
    if (const auto& seen = options.window > 0 ? masks.window : masks.whole; seen.defined()) {
      options.mask = seen;
      options.window = 0;
      options.causal = false;
    }
    auto out = mix(qkv, microbatch, options, choices(y, microbatch));
    if (!scale_.weights.empty()) out = scaled(out, context_.seams.tensor->column(y, drawn(scale_, microbatch)));
    return context_.seams.tensor->row(out, drawn(output_, microbatch));
  }

 private:
  /// [batch, tokens, (heads + groups) * width + groups * value width] to [batch, tokens, heads * value width].
  /// `choices`: see attended().
  at::Tensor mix(const at::Tensor& qkv, const Microbatch& microbatch, const ops::AttentionOptions& options,
                 const std::vector<ops::ChosenKeys>& choices) {
    const std::int64_t batch = qkv.size(0), tokens = qkv.size(1), width = width_;
    if (microbatch.cache) {
      const auto [q, k, v, gate] = prepared(apart(qkv), microbatch);
      const auto out = ops::attention_after(q, microbatch.cache->extend(layer_, k, v), options);
      return gated(out, gate).reshape({batch, tokens, heads_ * value_width_});
    }
    const bool alone = context_.seams.context->size() == 1 || microbatch.whole();
    const bool plain = blocks_ && !spec_.attention_gate && !query_norm_ && spec_.qkv_clip == 0 &&
                       spec_.query_growth == 0 && value_width_ == width && spec_.value_scale == 1;
    if (alone && plain && table_ != nullptr && table_->width() == width) {
      const auto angles = angles_of(*table_, microbatch);
      return ops::rope_attention(qkv,
                                 {.heads = heads_,
                                  .groups = groups_,
                                  .width = width,
                                  .cos = angles.cos,
                                  .sin = angles.sin,
                                  .interleaved = table_->interleaved(),
                                  .positions = angles.places},
                                 options);
    }
    const auto heads = apart(qkv);
    const auto [q, k, v, gate] = prepared(heads, microbatch);
    if (microbatch.lent && !borrows_) *microbatch.lent = {k, v};
    const auto out = !choices.empty() ? attended({q, k, v}, options, choices, microbatch)
                     : alone          ? ops::attention(q, k, v, options)
                                      : context_.seams.context->attention(q, k, v, options);
    return gated(out, gate).reshape({batch, tokens, heads_ * value_width_});
  }

  /// What the heads of the index choose, if this layer has one. Sequences of at most top_k tokens are seen whole.
  std::vector<ops::ChosenKeys> choices(const at::Tensor& y, const Microbatch& microbatch) const {
    if (!chooses_ || microbatch.length <= spec_.index->top_k) return {};
    const ops::NoGraph guard;
    return index_.choose(context_.seams.tensor->enter(y.detach()), microbatch);
  }

  /// Attention of as many equal parts of the model's heads as there are choices, of which some heads are here. Context-
  /// parallel ranks have whole sequences of a share of them.
  at::Tensor attended(const Heads& in, ops::AttentionOptions options, const std::vector<ops::ChosenKeys>& choices,
                      const Microbatch& microbatch) const {
    const HeadShare own(*context_.seams.context, microbatch);
    const auto [q, k, v] = own.gather(in.q, in.k, in.v);
    const std::int64_t share = spec_.heads_of(layer_) / std::ssize(choices), heads = q.size(2),
                       per_group = heads / k.size(2),
                       first = own.first(heads_) +
                               (heads_ < spec_.heads_of(layer_) ? context_.seams.tensor->rank() * heads_ : 0);
    std::vector<at::Tensor> parts;
    for (std::int64_t head = 0; head < heads;) {
      const auto chooser = (first + head) / share;
      const auto count = std::min((chooser + 1) * share - first, heads) - head;
      const auto group = head / per_group, groups = std::max<std::int64_t>(count / per_group, 1);
      options.chosen = choices[static_cast<std::size_t>(chooser)];
      parts.push_back(
          ops::attention(q.narrow(2, head, count), k.narrow(2, group, groups), v.narrow(2, group, groups), options));
      head += count;
    }
    return own.scatter(at::cat(parts, 2));
  }

  /// `out` [batch, tokens, heads, width], without what values were padded with.
  at::Tensor gated(const at::Tensor& out, const at::Tensor& gate) const {
    const auto own = value_width_ < out.size(3) ? out.narrow(3, 0, value_width_) : out;
    return gate.defined() ? own * at::sigmoid(gate) : own;
  }

  /// `out` times its gates (ModelSpec::output_gate): one per head, or per channel.
  at::Tensor scaled(const at::Tensor& out, const at::Tensor& gates) const {
    const auto factors = arch::is_sigmoid(spec_.output_gate)
                             ? at::sigmoid(gates)
                             : at::softplus(gates.to(ops::compute_type(gates.scalar_type()))).to(out.scalar_type());
    if (factors.size(2) == out.size(2)) return out * factors;
    return (out.unflatten(2, {heads_, value_width_}) * factors.unsqueeze(3)).flatten(2);
  }

  Heads apart(const at::Tensor& qkv) const {
    const std::int64_t batch = qkv.size(0), tokens = qkv.size(1), width = width_;
    if (borrows_) return {qkv.view({batch, tokens, heads_, width}), {}, {}};
    if (values_are_keys_) {
      const auto parts = ops::split(qkv, {heads_ * width, groups_ * width});
      const auto keys = parts[1].reshape({batch, tokens, groups_, width});
      return {parts[0].reshape({batch, tokens, heads_, width}), keys, keys};
    }
    if (spec_.attention_gate) {
      const auto parts = ops::split(qkv, {2 * heads_ * width, groups_ * width, groups_ * width});
      const auto both = ops::split(parts[0].reshape({batch, tokens, heads_, 2 * width}), {width, width});
      return {both[0], parts[1].reshape({batch, tokens, groups_, width}),
              parts[2].reshape({batch, tokens, groups_, width}), both[1]};
    }
    const auto own = heads_ / groups_;  // queries per group
    const auto parts =
        blocks_ ? ops::split(qkv, {heads_ * width, groups_ * width, groups_ * value_width_})
                : ops::split(qkv.view({batch, tokens, groups_, (own + 2) * width}), {own * width, width, width});
    return {parts[0].reshape({batch, tokens, heads_, width}), parts[1].reshape({batch, tokens, groups_, width}),
            parts[2].reshape({batch, tokens, groups_, value_width_})};
  }

  /// Applies norms, clamping and rotary embedding, in the order of the model family.
  Heads prepared(Heads in, const Microbatch& microbatch) {
    auto& [q, k, v, gate] = in;
    const bool late = spec_.head_norm && spec_.head_norm->after_rope;
    const auto norm = [&] {
      q = query_norm_(q);
      if (!borrows_) k = key_norm_(k);
    };
    if (borrows_) {
      AUTOMODEL_CHECK(microbatch.lent && microbatch.lent->k.defined(), "a layer without keys is lent another's");
      k = microbatch.lent->k;
      v = microbatch.lent->v;
    } else if (spec_.value_norm) {
      v = unit_rms(v, spec_.norm_eps);
    }
    if (spec_.value_scale != 1) v = v * spec_.value_scale;
    if (value_width_ < width_) v = at::constant_pad_nd(v, {0, width_ - value_width_});  // kernels want equal widths
    if (query_norm_ && !late) norm();
    if (spec_.qkv_clip > 0)
      for (auto* each : {&q, &k, &v}) *each = at::clamp(*each, -spec_.qkv_clip, spec_.qkv_clip);
    if (table_ != nullptr) {
      q = rotated(q, *table_, microbatch, table_->interleaved());
      if (!borrows_) k = rotated(k, *table_, microbatch, table_->interleaved());
    }
    if (late) norm();
    if (spec_.query_growth != 0) q = grown(q, spec_, microbatch.positions);
    // Queries and keys are tensors of their own then. The values' own let go of the joined product: in Qwen3-0.6B three
    // quarters of it, a quarter of what attention keeps, for a copy of the last.
    const bool replaced = table_ != nullptr || query_norm_ || spec_.qkv_clip > 0;
    if (replaced && !borrows_ && !values_are_keys_) v = v.contiguous();
    return in;
  }

  BlockContext context_;
  const arch::ModelSpec& spec_;
  int layer_;
  std::int64_t width_, value_width_;  ///< of a head
  RopeTable* table_;                  ///< null: no rotary embedding in this layer
  ops::Linear project_ = {}, output_ = {};
  ops::Linear scale_ = {};  ///< of factors of the heads' outputs; without weights: none
  HeadNorm query_norm_ = {}, key_norm_ = {};
  bool borrows_ = false;          ///< keys and values are another layer's (ModelSpec::layers_without_keys)
  bool values_are_keys_ = false;  ///< values are the keys' projection
  bool chooses_ = false;          ///< an index chooses what is seen
  BlockIndex index_ = {};
  bool blocks_ = true;  ///< all queries, then all keys, then all values
  std::int64_t heads_ = 1, groups_ = 1;
  ops::AttentionOptions options_ = {};
};

}  // namespace

at::Tensor rotated(const at::Tensor& x, RopeTable& table, const Microbatch& microbatch, bool interleaved) {
  const auto angles = angles_of(table, microbatch);
  const auto rotate = [&](const at::Tensor& part) {
    return ops::rope(part, angles.cos, angles.sin, angles.places, interleaved);
  };
  if (table.width() == x.size(-1)) return rotate(x);
  const auto parts = ops::split(x, {table.width(), x.size(-1) - table.width()});
  return at::cat({rotate(parts[0]), parts[1]}, -1);
}

std::unique_ptr<Block> make_attention(const BlockContext& context, int layer) {
  return std::make_unique<Attention>(context, layer);
}

}  // namespace automodel::model
