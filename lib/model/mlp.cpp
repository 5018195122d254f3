#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "base/error.h"
#include "model/blocks.h"
#include "ops/activation.h"
#include "ops/split.h"

namespace automodel::model {

ops::Gate gate_of(arch::Activation activation) {
  switch (activation) {
    case arch::Activation::kSilu: return ops::Gate::kSilu;
    case arch::Activation::kGelu: return ops::Gate::kGelu;
    case arch::Activation::kGeluTanh: return ops::Gate::kGeluTanh;
    case arch::Activation::kRelu: return ops::Gate::kRelu;
    case arch::Activation::kRelu2: return ops::Gate::kRelu2;
    case arch::Activation::kXielu: break;
  }
  throw InternalError("an activation with numbers of its own");
}

namespace {

using arch::Part;

/// The parts of a layer that make up a feed-forward block.
struct MlpParts {
  Part gate, up, gate_up, down;
};

class Mlp : public Block {
 public:
  /// `limit`: as ops::limited; 0: none.
  Mlp(const BlockContext& context, int layer, const MlpParts& parts, double limit)
      : tensor_(*context.seams.tensor),
        activation_(context.spec.activation),
        scales_(context.spec.scales),
        limit_(limit),
        end_limit_(context.spec.mlp_limit(layer)) {
    if (const auto& moe = context.spec.moe; moe && moe->shifted_gates)
      shifted_ = {moe->swiglu_alpha, moe->swiglu_limit};
    const LayerWeights weights(context, layer);
    up_ = weights.product({parts.gate_up, parts.gate, parts.up});
    down_ = weights.product({parts.down});
    gated_ = weights.has(parts.gate_up) || weights.has(parts.gate);
    if (activation_ != arch::Activation::kXielu) return;
    const auto number = [&](const char* name) {
      return context.weights.parameter(weights.fqn(Part::kActivation) + name);
    };
    numbers_ = {number(".alpha_p"), number(".alpha_n"), number(".beta"), number(".eps")};
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const auto out = tensor_.row(activated(tensor_.column(y, drawn(up_, microbatch))), drawn(down_, microbatch));
    return scales_.mlp_out == 1 ? out : out * scales_.mlp_out;
  }

 private:
  at::Tensor activated(const at::Tensor& wide) const {
    if (activation_ == arch::Activation::kXielu) return ops::xielu(wide, numbers_);
    if (gated_ && scales_.gate != 1) {
      const auto width = wide.size(-1) / 2;
      const auto parts = ops::split(wide, {width, width});
      return ops::gated(at::cat({parts[0] * scales_.gate, parts[1]}, -1), gate_of(activation_));
    }
    if (shifted_) return ops::shifted_gate(wide, *shifted_);
    if (end_limit_ > 0) return ops::gated_within(wide, gate_of(activation_), end_limit_);
    if (limit_ > 0) return ops::gated(ops::limited(wide, limit_), gate_of(activation_));
    return gated_ ? ops::gated(wide, gate_of(activation_)) : ops::activate(wide, gate_of(activation_));
  }

  TensorSeam& tensor_;
  arch::Activation activation_;
  const arch::BranchScales& scales_;
  double limit_, end_limit_;  ///< before the activation, and behind it
  ops::Linear up_ = {}, down_ = {};
  bool gated_ = false;
  std::optional<ops::PairedGate> shifted_ = {};
  ops::XieluNumbers numbers_ = {};
};

}  // namespace

std::unique_ptr<Block> make_mlp(const BlockContext& context, int layer) {
  return std::make_unique<Mlp>(context, layer, MlpParts{Part::kGate, Part::kUp, Part::kGateUp, Part::kDown}, 0);
}

std::unique_ptr<Block> make_shared_experts(const BlockContext& context, int layer) {
  return std::make_unique<Mlp>(context, layer,
                               MlpParts{Part::kSharedGate, Part::kSharedUp, Part::kSharedGateUp, Part::kSharedDown},
                               context.spec.moe->swiglu_limit);
}

}  // namespace automodel::model
