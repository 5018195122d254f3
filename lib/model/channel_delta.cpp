// Kimi Delta Attention (Kimi Team 2025): the gated delta rule with a decay for each channel of a head; queries, keys
// and values each pass through their own short convolution.
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>

#include "model/head_share.h"
#include "model/recurrent_blocks.h"
#include "ops/decay.h"
#include "ops/delta_rule.h"
#include "ops/element_type.h"
#include "ops/gated_norm.h"
#include "ops/short_conv.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

using arch::Part;

class ChannelDelta : public Block {
 public:
  ChannelDelta(const BlockContext& context, int layer)
      : tensor_(*context.seams.tensor), context_(*context.seams.context), state_(*context.spec.recurrence) {
    const LayerWeights weights(context, layer);
    project_ = weights.product({Part::kStateQuery, Part::kStateKey, Part::kStateValue, Part::kStateRate});
    decay_product_ = {weights, Part::kStateDecayDown, Part::kStateDecay};
    gate_product_ = {weights, Part::kStateGateDown, Part::kStateGate};
    output_ = weights.product({Part::kStateOut});
    for (const auto part : {Part::kStateQueryConv, Part::kStateKeyConv, Part::kStateValueConv})
      conv_.weights.push_back({weights.weight(part)});
    decay_ = {.rate = {weights.weight(Part::kStateDecayRate)},
              .bias = {weights.weight(Part::kStateDecayBias)},
              .lower_bound = state_.decay_bound};
    norm_ = {.weight = {weights.weight(Part::kStateNorm)}, .eps = state_.norm_eps, .shape = ops::GateShape::kSigmoid};
    heads_ = tensor_.local(state_.heads, *project_.weights[0]);
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const auto wide = tensor_.column(y, drawn(project_, microbatch));
    const auto keys = heads_ * state_.key_dim, values = heads_ * state_.value_dim;
    const HeadShare share(context_, microbatch);
    auto parts = ops::split(wide, {2 * keys + values, heads_});
    parts.push_back(decay_product_(tensor_, y, microbatch));
    if (share.divided()) gather(parts, share);
    const auto batch = parts[0].size(0), tokens = parts[0].size(1), own = share.of(heads_);
    const auto conv = share.part(conv_, {{keys, heads_}, {keys, heads_}, {values, heads_}});
    const auto seen = ops::split(ops::short_conv(parts[0], conv, microbatch.segments),
                                 {own * state_.key_dim, own * state_.key_dim, own * state_.value_dim});
    const auto heads = [&](const at::Tensor& x) { return x.reshape({batch, tokens, own, -1}); };
    const auto mixed =
        share.scatter(ops::delta_rule({.queries = heads(seen[0]),
                                       .keys = heads(seen[1]),
                                       .values = heads(seen[2]),
                                       .decays = ops::decay_gate(heads(parts[2]), share.part(decay_, heads_)),
                                       .rates = at::sigmoid(parts[1].to(ops::compute_type(y.scalar_type())))},
                                      kLengthEps, {.segments = microbatch.segments}));
    const auto out = ops::gated_norm(mixed, gate_product_(tensor_, y, microbatch).reshape(mixed.sizes()), norm_);
    return tensor_.row(out.flatten(2), drawn(output_, microbatch));
  }

 private:
  /// Whole sequences of the share's heads: inputs of the convolution, rates, decays.
  void gather(std::vector<at::Tensor>& parts, const HeadShare& share) const {
    const auto keys = heads_ * state_.key_dim, own = share.of(heads_);
    const auto mixed = ops::split(parts[0], {keys, keys, heads_ * state_.value_dim});
    parts = ops::split(
        share.gather(
            {{mixed[0], heads_}, {mixed[1], heads_}, {mixed[2], heads_}, {parts[1], heads_}, {parts[2], heads_}}),
        {own * (2 * state_.key_dim + state_.value_dim), own, own * state_.key_dim});
  }

  /// A projection, or a low-rank pair of projections whose low-rank vector all heads share.
  class Product {
   public:
    Product() = default;
    Product(const LayerWeights& weights, Part down, Part up) : up_(weights.product({up})) {
      if (weights.has(down)) down_ = weights.product({down});
    }
    at::Tensor operator()(TensorSeam& tensor, const at::Tensor& y, const Microbatch& microbatch) const {
      const auto low = down_.weights.empty() ? y : tensor.tokenwise(y, drawn(down_, microbatch));
      return tensor.column(low, drawn(up_, microbatch));
    }

   private:
    ops::Linear down_ = {}, up_ = {};
  };

  TensorSeam& tensor_;
  ContextSeam& context_;
  const arch::Recurrence& state_;
  ops::Linear project_ = {}, output_ = {};
  Product decay_product_ = {}, gate_product_ = {};
  ops::ShortConv conv_ = {};
  ops::DecayGate decay_ = {};
  ops::GatedNorm norm_ = {};
  std::int64_t heads_ = 1;  ///< on this rank
};

}  // namespace

std::unique_ptr<Block> make_channel_delta(const BlockContext& context, int layer) {
  return std::make_unique<ChannelDelta>(context, layer);
}

}  // namespace automodel::model
