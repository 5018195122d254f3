#include "ops/linear_cross_entropy.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/cross_entropy.h"
#include "ops/distillation.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/kernels/device.h"

namespace automodel::ops {
namespace {

constexpr const char* kKnown = "ranks that share a vocabulary know the factor of the loss";

/// The layer, with gradient buffers for accumulation over chunks: 16-bit ones are replaced by float32 until the last
/// chunk, and GEMM results are never rounded before they are added.
class ChunkedLayer {
 public:
  ChunkedLayer(const Linear& layer, bool several) : layer_(layer), several_(several) {
    for (auto& weight : layer_.weights) replace(weight);
    for (auto& bias : layer_.biases) replace(bias);
    for (auto& term : layer_.adapters) {
      replace(term.a);
      replace(term.b);
      replace(term.magnitude);
    }
  }
  /// The layer for rows [begin, begin + count) of its input: with their part of the dropout draw.
  const Linear& of_rows(std::int64_t begin, std::int64_t count) {
    if (all_ == nullptr) all_ = layer_.draw;
    if (all_ == nullptr) return layer_;
    auto part = std::make_shared<DropoutDraw>();
    part->seed = all_->seed;
    part->step = all_->step;
    const auto first = all_->tokens.begin() + begin;
    part->tokens.assign(first, first + count);
    layer_.draw = std::move(part);
    return layer_;
  }
  /// Moves the accumulated gradients to the parameters.
  void finish() {
    for (std::size_t i = 0; i < originals_.size(); ++i) {
      auto& original = *originals_[i];
      if (copies_[i].grad.is_same(original.grad))
        original.fresh = copies_[i].fresh;
      else if (!copies_[i].fresh)
        accumulate(original, copies_[i].grad);
    }
  }

 private:
  void replace(Parameter*& parameter) {
    if (parameter == nullptr) return;
    auto& copy = copies_.emplace_back(*parameter);
    originals_.push_back(parameter);
    parameter = &copy;
    copy.waiting = nullptr;
    copy.fused_accumulation = true;
    if (!copy.trained() || !several_ || !at::isReducedFloatingType(copy.grad.scalar_type())) return;
    copy.grad = at::empty(copy.grad.sizes(), copy.grad.options().dtype(at::kFloat));
    copy.fresh = true;
  }

  Linear layer_;
  bool several_;
  std::shared_ptr<const DropoutDraw> all_ = {};
  std::deque<Parameter> copies_ = {};  // a deque, because Linear points to its elements
  std::vector<Parameter*> originals_ = {};
};

/// Soft caps of a chunk's logits: the last one inside the loss kernel if that is a GPU kernel, the others before it.
class SoftCaps {
 public:
  /// `same_type`: the logits are not converted before the loss.
  SoftCaps(at::Tensor& logits, const std::vector<double>& caps, bool same_type) {
    for (std::size_t i = 0; i < caps.size(); ++i) {
      if (i + 1 == caps.size() && same_type && device_kernels(logits) != nullptr) {
        in_kernel_ = caps[i];
        break;
      }
      tangents_.push_back(logits.to(compute_type(logits.scalar_type()), false, true).div_(caps[i]).tanh_());
      logits.copy_(tangents_.back() * caps[i]);
    }
  }
  double in_kernel() const { return in_kernel_; }
  /// Converts the gradient of the capped logits into that of the original ones, in place. The cap inside the kernel is
  /// already included.
  void back(at::Tensor& gradient) {
    for (auto tangent = tangents_.rbegin(); tangent != tangents_.rend(); ++tangent)
      gradient.mul_(tangent->square_().neg_().add_(1));
  }

 private:
  std::vector<at::Tensor> tangents_ = {};
  double in_kernel_ = 0;
};

/// Loss of a chunk; with `gradient`, its logits are overwritten by their gradient.
at::Tensor loss_of(at::Tensor& logits, const at::Tensor& labels, std::int64_t begin, const HeadLoss& loss,
                   bool gradient) {
  const bool plain = !loss.lesson && (!loss.output || *loss.output == logits.scalar_type());
  SoftCaps caps(logits, loss.caps, plain);
  if (loss.output) logits = logits.to(*loss.output);
  const auto scale = loss.scale.times(loss.seed);
  const double cap = caps.in_kernel();
  at::Tensor losses;
  if (loss.lesson) {
    auto& lesson = *loss.lesson;
    const auto sums = lesson_loss(logits, lesson.logits(begin, logits.size(0)), labels, loss, scale, gradient);
    losses = sums.cross_entropy * (1 - lesson.ratio) + sums.divergence * lesson.ratio;
    for (const auto& [total, sum] :
         {std::pair(&lesson.cross_entropy, sums.cross_entropy), std::pair(&lesson.divergence, sums.divergence)}) {
      const auto scaled = loss.scale.of(sum);
      *total = total->defined() ? *total + scaled : scaled;
    }
  } else if (loss.gather) {
    const auto all = loss.gather(logit_statistics(logits, labels, loss.first, loss.columns, cap));
    AUTOMODEL_CHECK(!scale.device.defined(), kKnown);
    const auto joined = join_statistics(all, labels, scale.value, loss.ignore);
    losses = joined.losses.sum();
    if (gradient) logit_gradient(logits, labels, loss.first, loss.columns, joined.shares, scale.value, cap);
  } else {
    losses = cross_entropy_in_place(logits, labels, scale, loss.ignore, gradient, cap);
  }
  if (gradient) caps.back(logits);
  return loss.scale.of(losses);
}

class LinearCrossEntropyBackward : public Backward {
 public:
  LinearCrossEntropyBackward(at::Tensor dx, const Factor& seed, at::ScalarType type, std::vector<std::int64_t> shape)
      : dx_(std::move(dx)),
        seed_(seed.device.defined() ? std::nullopt : std::optional(seed.value)),
        type_(type),
        shape_(std::move(shape)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    if (seed_ && gradients[0].is_cpu() &&
        device_kernels(gradients[0]) == nullptr)  // on a device this check would synchronise
      AUTOMODEL_CHECK(gradients[0].item<double>() == *seed_, "a joined loss goes backward with another seed");
    return {dx_.view(shape_).to(type_)};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(dx_); }
  const char* name() const override { return "linear_cross_entropy"; }

 private:
  at::Tensor dx_;
  std::optional<double> seed_;  ///< absent if known only on the device
  at::ScalarType type_;
  std::vector<std::int64_t> shape_;
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const Linear& layer, const at::Tensor& labels,
                                const HeadLoss& loss) {
  if (has_magnitudes(layer) && !has_lengths(layer)) return linear_cross_entropy(x, with_lengths(layer), labels, loss);
  AUTOMODEL_CHECK(layer.weights.size() == 1 && !layer.transposed && layer.weights.front()->value.defined(),
                  "a joined loss needs the head's one weight here");
  const bool recorded = records({x});
  at::Tensor total, dx;
  {
    NoGraph guard;
    const WeightGradients::Scope at_once(nullptr);
    const auto flat = x.detach().reshape({-1, x.size(-1)}).to(layer.weights.front()->value.scalar_type());
    const auto wanted = labels.reshape({-1}).contiguous();
    const auto tokens = flat.size(0), rows = std::max<std::int64_t>(1, loss.rows);
    if (recorded) dx = at::empty_like(flat);
    ChunkedLayer chunked(layer, tokens > rows);
    total = at::zeros({}, flat.options().dtype(at::kDouble));
    for (std::int64_t begin = 0; begin < tokens; begin += rows) {
      const auto count = std::min(rows, tokens - begin);
      const auto part = flat.narrow(0, begin, count);
      const auto& here = chunked.of_rows(begin, count);
      auto logits = product(part, here);
      add_biases(logits, here);
      if (loss.logit_scale != 1) logits.mul_(loss.logit_scale);
      total.add_(loss_of(logits, wanted.narrow(0, begin, count), begin, loss, recorded));
      if (!recorded) continue;
      auto gradient = logits.to(flat.scalar_type());
      logits = at::Tensor();
      if (loss.logit_scale != 1) gradient.mul_(loss.logit_scale);
      at::Tensor low;
      dx.narrow(0, begin, count).copy_(input_gradient(gradient, here, &low));
      bias_gradients(gradient, here);
      weight_gradients(gradient, part, here, low);
    }
    if (recorded) chunked.finish();
  }
  if (recorded)
    record({total}, {x}, std::make_unique<LinearCrossEntropyBackward>(dx, loss.seed, x.scalar_type(), x.sizes().vec()));
  return total;
}

}  // namespace automodel::ops
