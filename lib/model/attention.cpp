#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "base/error.h"
#include "model/blocks.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

/// Queries, keys and values from one input: three weights, one joined weight, or GPT-2's transposed one.
ops::Linear projection(const Weights& w, const std::string& prefix) {
  ops::Linear out;
  if (auto* joined = w.parameter(prefix + ".self_attn.qkv_proj.weight")) {
    out = {.weights = {joined}, .biases = {w.parameter(prefix + ".self_attn.qkv_proj.bias")}};
  } else if (auto* transposed = w.parameter(prefix + ".attn.c_attn.weight")) {
    out = {.weights = {transposed}, .biases = {w.parameter(prefix + ".attn.c_attn.bias")}, .transposed = true};
  } else {
    for (const auto* name : {"q_proj", "k_proj", "v_proj"}) {
      out.weights.push_back(w.parameter(prefix + ".self_attn." + name + ".weight"));
      out.biases.push_back(w.parameter(prefix + ".self_attn." + name + ".bias"));
      AUTOMODEL_CHECK(out.weights.back() != nullptr, "no weight " + prefix + ".self_attn." + name);
    }
  }
  bool any = false;
  for (const auto* bias : out.biases) any = any || bias != nullptr;
  if (!any) out.biases.clear();
  return out;
}

/// Turns the first `width` elements of every head.
at::Tensor turn(const at::Tensor& x, const RopeTable::Angles& angles, const at::Tensor& positions, std::int64_t width) {
  if (width == x.size(-1)) return ops::rope(x, angles.cos, angles.sin, positions);
  const auto parts = ops::split(x, {width, x.size(-1) - width});
  return at::cat({ops::rope(parts[0], angles.cos, angles.sin, positions), parts[1]}, -1);
}

class Attention : public Block {
 public:
  Attention(const BlockContext& context, const std::string& prefix, int layer)
      : context_(context),
        spec_(context.spec),
        project_(projection(context.weights, prefix)),
        sliding_(spec_.attention[static_cast<std::size_t>(layer)] == arch::LayerAttention::kSliding) {
    const auto& w = context.weights;
    const bool transposed = w.find(prefix + ".attn.c_proj.weight") != nullptr;
    const std::string output = prefix + (transposed ? ".attn.c_proj" : ".self_attn.o_proj");
    output_ = {.weights = {w.parameter(output + ".weight")}, .transposed = transposed};
    AUTOMODEL_CHECK(output_.weights[0] != nullptr, "no output projection below " + prefix);
    if (auto* bias = w.parameter(output + ".bias")) output_.biases = {bias};
    adapt(context, project_);
    adapt(context, output_);
    query_norm_ = w.parameter(prefix + ".self_attn.q_norm.weight");
    key_norm_ = w.parameter(prefix + ".self_attn.k_norm.weight");
    heads_ = context.seams.tensor->local(spec_.heads, *project_.weights[0]);
    groups_ = context.seams.tensor->local(spec_.kv_heads, *project_.weights[0]);
    options_.scale =
        spec_.attention_scale > 0 ? spec_.attention_scale : 1 / std::sqrt(static_cast<double>(spec_.head_dim));
    if (spec_.scale_by_layer) options_.scale /= layer + 1;
    options_.window = sliding_ ? spec_.sliding_window : 0;
    options_.softcap = spec_.attention_softcap;
    options_.sinks = w.parameter(prefix + ".self_attn.sinks");
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const auto qkv = context_.seams.tensor->column(y, drawn(project_, microbatch));
    auto options = options_;
    options.segments = microbatch.segments;
    return context_.seams.tensor->row(mix(qkv, microbatch, options), drawn(output_, microbatch));
  }

 private:
  /// [batch, tokens, (heads + 2 groups) * width] to [batch, tokens, heads * width].
  at::Tensor mix(const at::Tensor& qkv, const Microbatch& microbatch, const ops::AttentionOptions& options) {
    const std::int64_t batch = qkv.size(0), tokens = qkv.size(1), width = spec_.head_dim;
    RopeTable* table = sliding_ ? context_.sliding_rope : context_.rope;
    const bool alone = context_.seams.context->size() == 1 || microbatch.whole();
    if (alone && table != nullptr && table->width() == width && query_norm_ == nullptr) {
      const auto angles = table->angles(microbatch.reach());
      return ops::rope_attention(qkv,
                                 {.heads = heads_,
                                  .groups = groups_,
                                  .width = width,
                                  .cos = angles.cos,
                                  .sin = angles.sin,
                                  .positions = microbatch.positions},
                                 options);
    }
    const auto parts = ops::split(qkv, {heads_ * width, groups_ * width, groups_ * width});
    auto q = parts[0].reshape({batch, tokens, heads_, width}), k = parts[1].reshape({batch, tokens, groups_, width});
    const auto v = parts[2].reshape({batch, tokens, groups_, width});
    if (query_norm_ != nullptr) {
      const double offset = spec_.norm_scale == arch::NormScale::kOnePlusInFloat ? 1.0 : 0.0;
      q = ops::rms_norm(q, *query_norm_, spec_.norm_eps, offset);
      k = ops::rms_norm(k, *key_norm_, spec_.norm_eps, offset);
    }
    if (table != nullptr) {
      const auto angles = table->angles(microbatch.reach());
      q = turn(q, angles, microbatch.positions, table->width());
      k = turn(k, angles, microbatch.positions, table->width());
    }
    const auto out = alone ? ops::attention(q, k, v, options) : context_.seams.context->attention(q, k, v, options);
    return out.reshape({batch, tokens, heads_ * width});
  }

  BlockContext context_;
  const arch::ModelSpec& spec_;
  ops::Linear project_, output_ = {};
  bool sliding_;
  ops::Parameter *query_norm_ = nullptr, *key_norm_ = nullptr;
  std::int64_t heads_ = 1, groups_ = 1;
  ops::AttentionOptions options_ = {};
};

}  // namespace

std::unique_ptr<Block> make_attention(const BlockContext& context, const std::string& prefix, int layer) {
  return std::make_unique<Attention>(context, prefix, layer);
}

}  // namespace automodel::model
