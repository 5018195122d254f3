// A gated short convolution (LFM2, 2025): of each token's three projections, the first and the third are multiplied as
// input of the convolution, and its output is multiplied with the second.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>

#include "model/recurrent_blocks.h"
#include "ops/graph.h"
#include "ops/short_conv.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

using arch::Part;

class GatedConv : public Block {
 public:
  GatedConv(const BlockContext& context, int layer) : tensor_(*context.seams.tensor), context_(*context.seams.context) {
    const LayerWeights weights(context, layer);
    project_ = weights.product({Part::kStateIn});
    output_ = weights.product({Part::kStateOut});
    conv_.weights = {{weights.weight(Part::kStateConv)}};
    if (auto* bias = weights.bias(Part::kStateConv)) conv_.biases = {{bias}};
    conv_.silu = false;
  }

  at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) override {
    const auto wide = tensor_.column(y, drawn(project_, microbatch));
    const auto channels = wide.size(2) / 3;
    const auto parts = ops::split(wide, {channels, channels, channels});
    const auto in = parts[0] * parts[2];
    const bool alone = context_.size() == 1 || microbatch.whole();
    const auto mixed = alone ? ops::short_conv(in, conv_, microbatch.segments) : mixed_in_runs(in, microbatch);
    return tensor_.row(parts[1] * mixed, drawn(output_, microbatch));
  }

 private:
  /// On context-parallel ranks: of each run of tokens here, behind the few before it that the convolution looks back
  /// to.
  at::Tensor mixed_in_runs(const at::Tensor& in, const Microbatch& microbatch) const {
    const auto back = conv_.weights.front().parameter->shape.back() - 1;
    const auto runs = context_.with_earlier(in, back);
    at::Tensor segments;
    if (microbatch.segments.defined()) {
      const ops::NoGraph guard;
      // Of each token here and those before it; before the sequence, those of no document.
      const auto lists = at::constant_pad_nd(microbatch.segments, {back, 0}, -1).unfold(1, back + 1, 1);
      const auto own = context_.own_tokens(lists).unflatten(1, {runs.size(1), -1});
      segments = at::cat({own.select(2, 0).narrow(2, 0, back), own.select(3, back)}, 2).flatten(0, 1);
    }
    const auto mixed = ops::short_conv(runs.flatten(0, 1), conv_, segments);
    return mixed.view(runs.sizes()).narrow(2, back, runs.size(2) - back).reshape(in.sizes());
  }

  TensorSeam& tensor_;
  ContextSeam& context_;
  ops::Linear project_ = {}, output_ = {};
  ops::ShortConv conv_ = {};
};

}  // namespace

std::unique_ptr<Block> make_gated_conv(const BlockContext& context, int layer) {
  return std::make_unique<GatedConv>(context, layer);
}

}  // namespace automodel::model
