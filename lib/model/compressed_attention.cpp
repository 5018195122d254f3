// Attention of DeepSeek V4 (2026): every query sees the tokens of a window, and entries that windows before it were
// compressed into. One head is key and value at once; since it is rotated as a key, the output is rotated back.
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "model/blocks.h"
#include "model/token_index.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace automodel::model {
namespace {

using arch::Part;

constexpr double kUnseen = -std::numeric_limits<double>::infinity();

/// Rotates the last channels of x [batch, tokens, heads, width]; positions int64 [batch, tokens], below `reach`.
/// `back`: by the opposite angle.
at::Tensor rotated(RopeTable& table, const at::Tensor& x, const at::Tensor& positions, std::int64_t reach,
                   bool back = false) {
  const auto angles = table.trailing(reach, x.size(3));
  return ops::rope(x, angles.cos, back ? angles.opposite : angles.sin, positions, table.interleaved());
}

/// The windows of a microbatch that are complete: each of `rate` tokens of one document.
struct Windows {
  std::int64_t rate = 0;
  at::Tensor ends = {};     ///< [batch, entries]: last token
  at::Tensor starts = {};   ///< [batch, entries]: position of the first token in its document
  at::Tensor visible = {};  ///< bool [batch, tokens, entries]: what each query may see
  at::Tensor whole = {};    ///< bool [batch, entries]: false where a document's end leaves fewer windows
  std::int64_t count() const { return ends.size(1); }
};

Windows windows_of(const Microbatch& microbatch, std::int64_t rate) {
  const ops::NoGraph guard;
  const auto& ids = microbatch.positions;
  const auto batch = ids.size(0), tokens = ids.size(1), count = tokens / rate;
  const auto places = at::arange(tokens, ids.options());
  // Padding may be longer than any document, and so than the table of RoPE; nobody else sees its entries.
  const auto most = microbatch.reach() - 1;
  Windows out{.rate = rate};
  const auto earlier = [&](const at::Tensor& ends) { return ends.unsqueeze(1).le(places.view({1, tokens, 1})); };
  if (!microbatch.segments.defined()) {
    out.ends = places.narrow(0, 0, count).mul(rate).add(rate - 1).unsqueeze(0).expand({batch, count});
    out.starts = out.ends.sub(rate - 1).clamp(0, most);
    out.whole = at::ones({batch, count}, ids.options().dtype(at::kBool));
    out.visible = earlier(out.ends);
    return out;
  }
  // Documents divide a row into windows of their own: `offset` counts tokens within each.
  const auto& segments = microbatch.segments;
  const auto begins = at::cat({at::ones({batch, 1}, ids.options().dtype(at::kBool)),
                               segments.narrow(1, 1, tokens - 1).ne(segments.narrow(1, 0, tokens - 1))},
                              1);
  const auto offset = places - std::get<0>(at::cummax(begins.to(at::kLong) * places, 1));
  const auto complete = offset.remainder(rate).eq(rate - 1);
  out.ends = std::get<1>(at::sort(complete.to(at::kLong), /*stable=*/true, 1, /*descending=*/true)).narrow(1, 0, count);
  out.whole = complete.gather(1, out.ends);
  out.starts = offset.gather(1, out.ends).sub(rate - 1).clamp(0, most);
  out.visible = earlier(out.ends)
                    .logical_and(segments.gather(1, out.ends).unsqueeze(1).eq(segments.unsqueeze(2)))
                    .logical_and(out.whole.unsqueeze(1));
  return out;
}

/// What compresses windows into entries: one key for attention, or one for its index.
class Entries {
 public:
  Entries() = default;
  Entries(const LayerWeights& weights, const std::array<Part, 4>& parts, std::int64_t width, bool overlap, double eps)
      : product_(weights.product({parts[0], parts[1]})),
        bias_(weights.weight(parts[2])),
        norm_(weights.weight(parts[3])),
        width_(width),
        overlap_(overlap),
        eps_(eps) {}

  /// [batch, entries, width], without RoPE: each channel a mean of the window's tokens, weighted by a softmax over
  /// them. With overlap each token has two series of channels, the first for the entry of the window behind its own.
  at::Tensor operator()(const at::Tensor& y, const Windows& windows, const Microbatch& microbatch) const {
    const auto wide = ops::linear(y, drawn(product_, microbatch));
    const auto bias = ops::use(*bias_, y);
    const auto series = overlap_ ? 2 * width_ : width_;
    const auto type = ops::compute_type(y.scalar_type());
    const auto rate = windows.rate, batch = y.size(0), tokens = y.size(1), count = windows.count();
    // Channels [first, first + width) of the tokens of each window, or of the one `back` tokens before it.
    const auto of_tokens = [&](std::int64_t back, std::int64_t first) {
      at::Tensor rows;
      {
        const ops::NoGraph guard;
        const auto inside = at::arange(rate, windows.ends.options()) - (rate - 1 + back);
        const auto row = at::arange(batch, windows.ends.options()).mul(tokens).view({batch, 1, 1});
        rows = (windows.ends.unsqueeze(2) + inside).clamp_min(0).add(row).flatten();
      }
      const auto pick = [&](std::int64_t at) {
        return wide.narrow(2, at, width_).flatten(0, 1).index_select(0, rows).view({batch, count, rate, width_});
      };
      return std::pair{pick(first), (pick(series + first) + bias.narrow(1, first, width_)).to(type)};
    };
    auto [values, logits] = of_tokens(0, overlap_ ? width_ : 0);
    if (overlap_) {
      auto [before, logits_before] = of_tokens(rate, 0);
      const auto first = windows.starts.lt(rate).view({batch, count, 1, 1});
      values = at::cat({before, values}, 2);
      logits = at::cat({logits_before.masked_fill(first, kUnseen), logits}, 2);
    }
    return ops::rms_norm((values * at::softmax(logits, 2).to(values.scalar_type())).sum(2), *norm_, eps_);
  }

 private:
  ops::Linear product_ = {};
  ops::Parameter *bias_ = nullptr, *norm_ = nullptr;
  std::int64_t width_ = 0;
  bool overlap_ = false;
  double eps_ = 0;
};

class CompressedAttention : public Block {
 public:
  CompressedAttention(const BlockContext& context, int layer)
      : spec_(context.spec), attention_(*context.spec.compressed), rate_(context.spec.compression(layer)) {
    const LayerWeights weights(context, layer);
    q_down_ = weights.product({Part::kQueryDown});
    q_norm_ = weights.weight(Part::kQueryDownNorm);
    q_up_ = weights.product({Part::kQueryUp});
    key_ = weights.product({Part::kKeyValueDown});
    key_norm_ = weights.weight(Part::kKeyValueDownNorm);
    out_down_ = weights.weight(Part::kOutDown);
    out_ = weights.product({Part::kAttentionOut});
    options_.scale = 1 / std::sqrt(static_cast<double>(spec_.head_dim));
    options_.sinks = weights.weight(Part::kSinks);
    rope_ = rate_ > 0 ? context.rope : context.sliding_rope;
    if (rate_ == 0) return;
    sparse_ = attention_.is_sparse(layer);
    entries_ = Entries(weights, {Part::kEntryValue, Part::kEntryLogits, Part::kEntryBias, Part::kEntryNorm},
                       spec_.head_dim, sparse_, spec_.norm_eps);
    if (!sparse_) return;
    index_query_ = weights.weight(Part::kIndexQuery);
    index_weights_ = weights.weight(Part::kIndexWeights);
    index_entries_ = Entries(
        weights, {Part::kIndexEntryValue, Part::kIndexEntryLogits, Part::kIndexEntryBias, Part::kIndexEntryNorm},
        attention_.index_dim, true, spec_.norm_eps);
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const std::int64_t batch = y.size(0), tokens = y.size(1), heads = spec_.heads, width = spec_.head_dim;
    const auto reach = microbatch.reach();
    const auto low_q = ops::rms_norm(ops::linear(y, drawn(q_down_, microbatch)), *q_norm_, spec_.norm_eps);
    const auto wide_q = ops::linear(low_q, drawn(q_up_, microbatch)).view({batch, tokens, heads, width});
    const auto q = rotated(*rope_, query_norm_(wide_q, spec_.norm_eps), microbatch.positions, reach);
    auto key = ops::rms_norm(ops::linear(y, drawn(key_, microbatch)), *key_norm_, spec_.norm_eps);
    key = rotated(*rope_, key.view({batch, tokens, 1, width}), microbatch.positions, reach);
    auto options = options_;
    if (rate_ == 0 || tokens < rate_) {
      options.window = spec_.sliding_window;
      options.segments = microbatch.segments;
      options.documents = microbatch.documents;
    } else {
      const auto windows = windows_of(microbatch, rate_);
      const auto entries = entries_(y, windows, microbatch).unsqueeze(2);
      key = at::cat({key, rotated(*rope_, entries, windows.starts, reach)}, 1);
      options.causal = false;
      options.mask = at::cat({near(microbatch), seen_entries(y, low_q, windows, microbatch)}, 2);
    }
    const auto attended = rotated(*rope_, ops::attention(q, key, key, options), microbatch.positions, reach, true);
    const std::int64_t groups = attention_.output_groups;
    const auto of_group = attended.reshape({batch * tokens, groups, -1}).transpose(0, 1);
    const auto matrices = ops::use(*out_down_, y).unflatten(0, {groups, -1}).transpose(1, 2);
    const auto low = at::bmm(of_group, matrices).transpose(0, 1).reshape({batch, tokens, -1});
    return ops::linear(low, drawn(out_, microbatch));
  }

 private:
  /// bool [batch, tokens, tokens]: the tokens of each query's window.
  at::Tensor near(const Microbatch& microbatch) const {
    const ops::NoGraph guard;
    const auto& ids = microbatch.positions;
    const auto keys = at::arange(ids.size(1), ids.options()), queries = keys.unsqueeze(1);
    const auto window = keys.le(queries).logical_and(keys.gt(queries - spec_.sliding_window)).unsqueeze(0);
    if (const auto& segments = microbatch.segments; segments.defined())
      return window.logical_and(ops::same_segment(segments, segments).squeeze(1));
    return window.expand({ids.size(0), ids.size(1), ids.size(1)});
  }

  /// bool [batch, tokens, entries]: what each query sees; in sparse layers at most top_k of the entries before it, by
  /// the score of its index: sum over heads of w_h relu(q_h k).
  at::Tensor seen_entries(const at::Tensor& y, const at::Tensor& low_q, const Windows& windows,
                          const Microbatch& microbatch) {
    const ops::NoGraph guard;
    const std::int64_t top_k = attention_.top_k, heads = attention_.index_heads, width = attention_.index_dim;
    if (!sparse_ || windows.count() <= top_k) return windows.visible;
    const auto type = ops::compute_type(y.scalar_type());
    const auto batch = y.size(0), tokens = y.size(1);
    const auto product = [](const at::Tensor& x, const ops::Parameter& weight) {
      return at::matmul(x, weight.dense().t());
    };
    const auto q = rotated(*rope_, product(low_q.detach(), *index_query_).view({batch, tokens, heads, width}),
                           microbatch.positions, microbatch.reach())
                       .to(type);
    const auto entries = index_entries_(y.detach(), windows, microbatch).unsqueeze(2);
    const auto k = rotated(*rope_, entries, windows.starts, microbatch.reach()).squeeze(2).to(type).transpose(1, 2) /
                   std::sqrt(static_cast<double>(width));
    const auto weights = product(y.detach(), *index_weights_).to(type) / std::sqrt(static_cast<double>(heads));
    const auto best = best_scored(q, k, weights, windows.visible, top_k);
    return at::zeros(windows.visible.sizes(), windows.visible.options())
        .scatter_(2, best, true)
        .logical_and(windows.visible);
  }

  const arch::ModelSpec& spec_;
  const arch::CompressedAttention& attention_;
  int rate_;
  bool sparse_ = false;
  ops::Linear q_down_ = {}, q_up_ = {}, key_ = {}, out_ = {};
  ops::Parameter *q_norm_ = nullptr, *key_norm_ = nullptr, *out_down_ = nullptr, *index_query_ = nullptr,
                 *index_weights_ = nullptr;
  UnitRms query_norm_ = {};
  Entries entries_ = {}, index_entries_ = {};
  RopeTable* rope_ = nullptr;
  ops::AttentionOptions options_ = {};
};

}  // namespace

std::unique_ptr<Block> make_compressed_attention(const BlockContext& context, int layer) {
  return std::make_unique<CompressedAttention>(context, layer);
}

}  // namespace automodel::model
