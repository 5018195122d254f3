#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "base/error.h"
#include "model/blocks.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

/// Queries, keys and values from one input: three weights, one joined weight, or GPT-2's transposed one.
class Projection {
 public:
  Projection(const BlockContext& context, const std::string& prefix) : tensor_(*context.seams.tensor) {
    const auto& w = context.weights;
    if (auto* joined = w.parameter(prefix + ".self_attn.qkv_proj.weight")) {
      weights_ = {joined};
      biases_ = {w.parameter(prefix + ".self_attn.qkv_proj.bias")};
    } else if (auto* transposed = w.parameter(prefix + ".attn.c_attn.weight")) {
      transposed_ = transposed;
      biases_ = {w.parameter(prefix + ".attn.c_attn.bias")};
    } else {
      for (const auto* name : {"q_proj", "k_proj", "v_proj"}) {
        weights_.push_back(w.parameter(prefix + ".self_attn." + name + ".weight"));
        biases_.push_back(w.parameter(prefix + ".self_attn." + name + ".bias"));
        AUTOMODEL_CHECK(weights_.back() != nullptr, "no weight " + prefix + ".self_attn." + name);
      }
    }
    bool any = false;
    for (const auto* bias : biases_) any = any || bias != nullptr;
    if (!any) biases_.clear();
  }

  at::Tensor operator()(const at::Tensor& y) const {
    if (transposed_ != nullptr)
      return ops::linear_transposed(tensor_.enter(y), *transposed_, biases_.empty() ? nullptr : biases_[0]);
    return tensor_.column(y, weights_, biases_);
  }

 private:
  TensorSeam& tensor_;
  ops::Parameters weights_ = {}, biases_ = {};
  ops::Parameter* transposed_ = nullptr;
};

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
        project_(context, prefix),
        sliding_(spec_.attention[static_cast<std::size_t>(layer)] == arch::LayerAttention::kSliding) {
    const auto& w = context.weights;
    output_ = w.parameter(prefix + ".self_attn.o_proj.weight");
    output_bias_ = w.parameter(prefix + ".self_attn.o_proj.bias");
    if (output_ == nullptr) {
      output_ = w.parameter(prefix + ".attn.c_proj.weight");
      output_bias_ = w.parameter(prefix + ".attn.c_proj.bias");
      output_transposed_ = true;
    }
    AUTOMODEL_CHECK(output_ != nullptr, "no output projection below " + prefix);
    query_norm_ = w.parameter(prefix + ".self_attn.q_norm.weight");
    key_norm_ = w.parameter(prefix + ".self_attn.k_norm.weight");
    const int tp = context.seams.tensor->size();
    heads_ = spec_.heads / tp;
    groups_ = spec_.kv_heads / tp;
    options_.scale =
        spec_.attention_scale > 0 ? spec_.attention_scale : 1 / std::sqrt(static_cast<double>(spec_.head_dim));
    if (spec_.scale_by_layer) options_.scale /= layer + 1;
    options_.window = sliding_ ? spec_.sliding_window : 0;
    options_.softcap = spec_.attention_softcap;
    options_.sinks = w.parameter(prefix + ".self_attn.sinks");
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const auto qkv = project_(y);
    auto options = options_;
    options.segments = microbatch.segments;
    const auto out = mix(qkv, microbatch, options);
    if (output_transposed_) {
      if (context_.seams.tensor->size() == 1) return ops::linear_transposed(out, *output_, output_bias_);
      const auto sum = context_.seams.tensor->leave(ops::linear_transposed(out, *output_, nullptr));
      return output_bias_ != nullptr ? ops::add_bias(sum, *output_bias_) : sum;
    }
    return context_.seams.tensor->row(out, *output_, output_bias_);
  }

 private:
  /// [batch, tokens, (heads + 2 groups) * width] to [batch, tokens, heads * width].
  at::Tensor mix(const at::Tensor& qkv, const Microbatch& microbatch, const ops::AttentionOptions& options) {
    const std::int64_t batch = qkv.size(0), tokens = qkv.size(1), width = spec_.head_dim;
    RopeTable* table = sliding_ ? context_.sliding_rope : context_.rope;
    const bool plain =
        table != nullptr && table->width() == width && query_norm_ == nullptr && context_.seams.context->size() == 1;
    if (plain) {
      const auto angles = table->angles(microbatch.length);
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
      const auto angles = table->angles(microbatch.length);
      q = turn(q, angles, microbatch.positions, table->width());
      k = turn(k, angles, microbatch.positions, table->width());
    }
    return context_.seams.context->attention(q, k, v, options).reshape({batch, tokens, heads_ * width});
  }

  BlockContext context_;
  const arch::ModelSpec& spec_;
  Projection project_;
  bool sliding_;
  ops::Parameter *output_ = nullptr, *output_bias_ = nullptr, *query_norm_ = nullptr, *key_norm_ = nullptr;
  bool output_transposed_ = false;
  std::int64_t heads_ = 1, groups_ = 1;
  ops::AttentionOptions options_ = {};
};

}  // namespace

std::unique_ptr<Block> make_attention(const BlockContext& context, const std::string& prefix, int layer) {
  return std::make_unique<Attention>(context, prefix, layer);
}

}  // namespace automodel::model
