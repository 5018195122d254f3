// A gated short convolution (LFM2, 2025): of each token's three projections, the first and the third are multiplied as
// input of the convolution, and its output is multiplied with the second.
#include <ATen/TensorOperators.h>

#include "model/head_share.h"
#include "model/recurrent_blocks.h"
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
    const HeadShare share(context_, microbatch);
    const auto in = parts[0] * parts[2];
    const auto mixed = ops::short_conv(share.divided() ? share.gather({{in, channels}}) : in,
                                       share.part(conv_, {{channels, channels}}), microbatch.segments);
    const auto back = share.scatter(mixed.unsqueeze(3)).squeeze(3);
    return tensor_.row(parts[1] * back, drawn(output_, microbatch));
  }

 private:
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
