// Gated delta rule (Yang et al. 2025), as in Qwen3-Next and Qwen 3.5: queries, keys and values pass through a short
// convolution, each head has one decay, and the normed output of the state is gated.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
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

class GatedDelta : public Block {
 public:
  GatedDelta(const BlockContext& context, int layer)
      : tensor_(*context.seams.tensor),
        context_(*context.seams.context),
        state_(*context.spec.recurrence),
        joined_(state_.sections.empty()) {
    const LayerWeights weights(context, layer);
    project_ = weights.product({Part::kStateIn, Part::kStateGate, Part::kStateRate, Part::kStateDecay});
    output_ = weights.product({Part::kStateOut});
    conv_.weights = {{weights.weight(Part::kStateConv)}};
    decay_ = {.rate = {weights.weight(Part::kStateDecayRate)}, .bias = {weights.weight(Part::kStateDecayBias)}};
    norm_ = {.weight = {weights.weight(Part::kStateNorm)}, .eps = state_.norm_eps};
    heads_ = tensor_.local(state_.heads, *project_.weights[0]);
    groups_ = heads_ / (state_.heads / state_.groups);
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const HeadShare share(context_, microbatch);
    auto in = apart(tensor_.column(y, drawn(project_, microbatch)));
    if (share.divided()) in = gathered(in, share);
    const auto batch = in.mixed.size(0), tokens = in.mixed.size(1), groups = share.of(groups_), own = share.of(heads_);
    const auto keys = groups * state_.key_dim, values = own * state_.value_dim;
    const auto all_keys = groups_ * state_.key_dim;
    const auto conv =
        share.part(conv_, {{all_keys, groups_}, {all_keys, groups_}, {heads_ * state_.value_dim, heads_}});
    const auto parts = ops::split(ops::short_conv(in.mixed, conv, microbatch.segments), {keys, keys, values});
    const auto heads = [&](const at::Tensor& x, std::int64_t count) { return x.reshape({batch, tokens, count, -1}); };
    const auto mixed =
        share.scatter(ops::delta_rule({.queries = heads(parts[0], groups),
                                       .keys = heads(parts[1], groups),
                                       .values = heads(parts[2], own),
                                       .decays = ops::decay_gate(in.decays, share.part(decay_, heads_)),
                                       .rates = at::sigmoid(in.rates.to(ops::compute_type(y.scalar_type())))},
                                      kLengthEps, {.segments = microbatch.segments}));
    const auto out = ops::gated_norm(mixed, in.gates.reshape(mixed.sizes()), norm_);
    return tensor_.row(out.flatten(2), drawn(output_, microbatch));
  }

 private:
  struct Inputs {
    at::Tensor mixed;  ///< queries, keys, values, each for all heads
    at::Tensor gates, rates, decays;
  };

  /// Whole sequences of the share's heads, but for the gates.
  Inputs gathered(const Inputs& in, const HeadShare& share) const {
    const auto keys = groups_ * state_.key_dim, own = share.of(heads_);
    const auto parts = ops::split(in.mixed, {keys, keys, heads_ * state_.value_dim});
    const auto all = ops::split(
        share.gather(
            {{parts[0], groups_}, {parts[1], groups_}, {parts[2], heads_}, {in.rates, heads_}, {in.decays, heads_}}),
        {2 * share.of(groups_) * state_.key_dim + own * state_.value_dim, own, own});
    return {all[0], in.gates, all[1], all[2]};
  }

  Inputs apart(const at::Tensor& wide) const {
    const auto batch = wide.size(0), tokens = wide.size(1);
    const auto keys = groups_ * state_.key_dim, values = heads_ * state_.value_dim;
    if (!joined_) {
      const auto parts = ops::split(wide, {2 * keys + values, values, heads_, heads_});
      return {parts[0], parts[1], parts[2], parts[3]};
    }
    const auto own = heads_ / groups_;
    const auto both = ops::split(wide, {2 * (keys + values), 2 * heads_});
    const auto state = ops::split(both[0].view({batch, tokens, groups_, -1}),
                                  {state_.key_dim, state_.key_dim, own * state_.value_dim, own * state_.value_dim});
    const auto numbers = ops::split(both[1].view({batch, tokens, groups_, -1}), {own, own});
    const auto flat = [&](const at::Tensor& x) { return x.reshape({batch, tokens, -1}); };
    return {at::cat({flat(state[0]), flat(state[1]), flat(state[2])}, 2), state[3], flat(numbers[0]), flat(numbers[1])};
  }

  TensorSeam& tensor_;
  ContextSeam& context_;
  const arch::Recurrence& state_;
  bool joined_;  ///< the input projection's results are ordered by group
  ops::Linear project_ = {}, output_ = {};
  ops::ShortConv conv_ = {};
  ops::DecayGate decay_ = {};
  ops::GatedNorm norm_ = {};
  std::int64_t heads_ = 1, groups_ = 1;  ///< on this rank
};

}  // namespace

std::unique_ptr<Block> make_gated_delta(const BlockContext& context, int layer) {
  return std::make_unique<GatedDelta>(context, layer);
}

}  // namespace automodel::model
