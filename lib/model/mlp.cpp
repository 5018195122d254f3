#include "base/error.h"
#include "model/blocks.h"
#include "ops/activation.h"

namespace automodel::model {

ops::Gate gate_of(arch::Activation activation) {
  switch (activation) {
    case arch::Activation::kSilu: return ops::Gate::kSilu;
    case arch::Activation::kGelu: return ops::Gate::kGelu;
    case arch::Activation::kGeluTanh: return ops::Gate::kGeluTanh;
    case arch::Activation::kRelu: break;
  }
  throw InternalError("an activation that no family trained here has");
}

namespace {

class Mlp : public Block {
 public:
  Mlp(const BlockContext& context, const std::string& prefix)
      : tensor_(*context.seams.tensor), gate_(gate_of(context.spec.activation)) {
    const auto& w = context.weights;
    const auto take = [&](const std::string& name) {
      auto* weight = w.parameter(prefix + name + ".weight");
      if (weight == nullptr) return false;
      up_.weights.push_back(weight);
      if (auto* bias = w.parameter(prefix + name + ".bias")) up_.biases.push_back(bias);
      return true;
    };
    if (take(".gate_up_proj")) {
      gated_ = true;
    } else if (take(".gate_proj")) {
      gated_ = take(".up_proj");
    } else if (take(".c_fc")) {
      up_.transposed = true;
    } else {
      AUTOMODEL_CHECK(take(".up_proj"), "no feed-forward weights below " + prefix);
    }
    const std::string down = prefix + (up_.transposed ? ".c_proj" : ".down_proj");
    down_ = {.weights = {w.parameter(down + ".weight")}, .transposed = up_.transposed};
    AUTOMODEL_CHECK(down_.weights[0] != nullptr, "no weight " + down);
    if (auto* bias = w.parameter(down + ".bias")) down_.biases = {bias};
    adapt(context, up_);
    adapt(context, down_);
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const auto wide = tensor_.column(y, drawn(up_, microbatch));
    return tensor_.row(gated_ ? ops::gated(wide, gate_) : ops::activate(wide, gate_), drawn(down_, microbatch));
  }

 private:
  TensorSeam& tensor_;
  ops::Gate gate_;
  ops::Linear up_ = {}, down_ = {};
  bool gated_ = false;
};

}  // namespace

std::unique_ptr<Block> make_mlp(const BlockContext& context, const std::string& prefix, int) {
  return std::make_unique<Mlp>(context, prefix);
}

}  // namespace automodel::model
