#include "base/error.h"
#include "model/blocks.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

ops::Gate gate_of(arch::Activation activation) {
  switch (activation) {
    case arch::Activation::kSilu: return ops::Gate::kSilu;
    case arch::Activation::kGelu: return ops::Gate::kGelu;
    case arch::Activation::kGeluTanh: return ops::Gate::kGeluTanh;
    case arch::Activation::kRelu: break;
  }
  throw InternalError("an activation that no family trained here has");
}

class Mlp : public Block {
 public:
  Mlp(const BlockContext& context, const std::string& prefix)
      : tensor_(*context.seams.tensor), gate_(gate_of(context.spec.activation)) {
    const auto& w = context.weights;
    const auto take = [&](const std::string& name) {
      up_ = {w.parameter(prefix + name + ".weight")};
      up_bias_ = {w.parameter(prefix + name + ".bias")};
      return up_[0] != nullptr;
    };
    if (take(".mlp.gate_up_proj")) {
      gated_ = true;
    } else if (take(".mlp.gate_proj")) {
      gated_ = true;
      up_.push_back(w.parameter(prefix + ".mlp.up_proj.weight"));
      up_bias_.push_back(w.parameter(prefix + ".mlp.up_proj.bias"));
    } else if (take(".mlp.c_fc")) {
      transposed_ = true;
    } else {
      AUTOMODEL_CHECK(take(".mlp.up_proj"), "no feed-forward weights below " + prefix);
    }
    const std::string down = prefix + (transposed_ ? ".mlp.c_proj" : ".mlp.down_proj");
    down_ = w.parameter(down + ".weight");
    down_bias_ = w.parameter(down + ".bias");
    AUTOMODEL_CHECK(down_ != nullptr, "no weight " + down);
    if (up_bias_[0] == nullptr) up_bias_.clear();
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch&) override {
    if (transposed_) {
      const auto wide = ops::activate(
          ops::linear_transposed(tensor_.enter(y), *up_[0], up_bias_.empty() ? nullptr : up_bias_[0]), gate_);
      if (tensor_.size() == 1) return ops::linear_transposed(wide, *down_, down_bias_);
      const auto sum = tensor_.leave(ops::linear_transposed(wide, *down_, nullptr));
      return down_bias_ != nullptr ? ops::add_bias(sum, *down_bias_) : sum;
    }
    const auto wide = tensor_.column(y, up_, up_bias_);
    return tensor_.row(gated_ ? ops::gated(wide, gate_) : ops::activate(wide, gate_), *down_, down_bias_);
  }

 private:
  TensorSeam& tensor_;
  ops::Gate gate_;
  ops::Parameters up_ = {}, up_bias_ = {};
  ops::Parameter *down_ = nullptr, *down_bias_ = nullptr;
  bool gated_ = false, transposed_ = false;
};

}  // namespace

std::unique_ptr<Block> make_mlp(const BlockContext& context, const std::string& prefix, int) {
  return std::make_unique<Mlp>(context, prefix);
}

}  // namespace automodel::model
