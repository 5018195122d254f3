// Mamba-2 (Dao and Gu 2024): values, keys (B) and queries (C) pass through a short convolution, a time step per head
// sets both the decay and the weight of each value, and the output of the state is gated and normed.
#include <array>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "model/head_share.h"
#include "model/recurrent_blocks.h"
#include "ops/decay.h"
#include "ops/decayed_scan.h"
#include "ops/gated_norm.h"
#include "ops/short_conv.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

using arch::Part;

class Mamba : public Block {
 public:
  Mamba(const BlockContext& context, int layer)
      : tensor_(*context.seams.tensor),
        context_(*context.seams.context),
        state_(*context.spec.recurrence),
        scales_(context.spec.scales) {
    const LayerWeights weights(context, layer);
    project_ = weights.product({Part::kStateIn});
    output_ = weights.product({Part::kStateOut});
    conv_.weights = {{weights.weight(Part::kStateConv)}};
    if (auto* bias = weights.bias(Part::kStateConv)) conv_.biases = {{bias}};
    steps_ = {.rate = {weights.weight(Part::kStateDecayRate)},
              .bias = {weights.weight(Part::kStateDecayBias)},
              .least = state_.least_step,
              .most = state_.most_step};
    skip_ = weights.weight(Part::kStateSkip);
    norm_ = {.weight = {weights.weight(Part::kStateNorm)},
             .eps = state_.norm_eps,
             .order = state_.norm_first ? ops::GateOrder::kNormFirst : ops::GateOrder::kGateFirst};
    heads_ = tensor_.local(state_.heads, *project_.weights[0]);
    groups_ = heads_ / (state_.heads / state_.groups);
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const auto scaled = scales_.state_in == 1 ? y : y * scales_.state_in;
    const auto wide = tensor_.column(scaled, drawn(project_, microbatch));
    const HeadShare share(context_, microbatch);
    auto parts = first_parts(wide, heads_ * state_.value_dim, groups_ * state_.key_dim);
    if (share.divided()) gather(parts, share);
    const auto batch = parts[1].size(0), tokens = parts[1].size(1), own = share.of(heads_), groups = share.of(groups_);
    const auto inner = own * state_.value_dim, keys = groups * state_.key_dim;
    const auto all_keys = groups_ * state_.key_dim;
    const auto conv =
        share.part(conv_, {{heads_ * state_.value_dim, heads_}, {all_keys, groups_}, {all_keys, groups_}});
    const auto seen = ops::split(ops::short_conv(parts[1], conv, microbatch.segments), {inner, keys, keys});
    const auto heads = [&](const at::Tensor& x, std::int64_t count) { return x.reshape({batch, tokens, count, -1}); };
    const auto values = heads(seen[0], own);
    const auto [steps, decays] = ops::step_gate(parts[2], share.part(steps_, heads_));
    auto mixed = ops::decayed_scan({.queries = heads(seen[2], groups),
                                    .keys = heads(seen[1], groups),
                                    .values = values,
                                    .decays = decays,
                                    .steps = steps},
                                   {.segments = microbatch.segments});
    const auto skip = share.heads(ops::use(*skip_, values).to(values.scalar_type()));
    mixed = share.scatter(mixed + values * skip.unsqueeze(1));
    const auto by_group = [&](const at::Tensor& x) { return x.reshape({x.size(0), wide.size(1), groups_, -1}); };
    const auto out = ops::gated_norm(by_group(mixed), by_group(parts[0]), norm_);
    const auto back = tensor_.row(out.flatten(2), drawn(output_, microbatch));
    return scales_.state_out == 1 ? back : back * scales_.state_out;
  }

 private:
  /// Whole sequences of the share's heads, but for the gates.
  void gather(std::vector<at::Tensor>& parts, const HeadShare& share) const {
    const auto keys = groups_ * state_.key_dim, own = share.of(heads_);
    const auto mixed = ops::split(parts[1], {heads_ * state_.value_dim, keys, keys});
    const auto all =
        ops::split(share.gather({{mixed[0], heads_}, {mixed[1], groups_}, {mixed[2], groups_}, {parts[2], heads_}}),
                   {own * state_.value_dim + 2 * share.of(groups_) * state_.key_dim, own});
    parts[1] = all[0];
    parts[2] = all[1];
  }

  /// Gates, inputs of the convolution, time steps.
  std::vector<at::Tensor> first_parts(const at::Tensor& wide, std::int64_t inner, std::int64_t keys) const {
    static constexpr std::array<double, 5> kNone = {1, 1, 1, 1, 1};
    if (scales_.state == kNone) return ops::split(wide, {inner, inner + 2 * keys, heads_});
    auto parts = ops::split(wide, {inner, inner, keys, keys, heads_});
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = parts[i] * scales_.state[i];
    return {parts[0], at::cat({parts[1], parts[2], parts[3]}, 2), parts[4]};
  }

  TensorSeam& tensor_;
  ContextSeam& context_;
  const arch::Recurrence& state_;
  const arch::BranchScales& scales_;
  ops::Linear project_ = {}, output_ = {};
  ops::ShortConv conv_ = {};
  ops::StepGate steps_ = {};
  ops::Parameter* skip_ = nullptr;
  ops::GatedNorm norm_ = {};
  std::int64_t heads_ = 1, groups_ = 1;  ///< on this rank
};

class MambaAndAttention : public Block {
 public:
  MambaAndAttention(const BlockContext& context, int layer)
      : scales_(context.spec.scales), mamba_(make_mamba(context, layer)), attention_(make_attention(context, layer)) {}

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const auto seen = scales_.attention_in == 1 ? y : y * scales_.attention_in;
    const auto attended = attention_->forward(seen, microbatch) * scales_.attention_out;
    return mamba_->forward(y, microbatch) + attended;
  }

 private:
  const arch::BranchScales& scales_;
  std::unique_ptr<Block> mamba_, attention_;
};

}  // namespace

std::unique_ptr<Block> make_mamba(const BlockContext& context, int layer) {
  return std::make_unique<Mamba>(context, layer);
}

std::unique_ptr<Block> make_mamba_and_attention(const BlockContext& context, int layer) {
  return std::make_unique<MambaAndAttention>(context, layer);
}

}  // namespace automodel::model
