#include "parallel/tensor/vocabulary.h"

#include <algorithm>
#include <memory>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "ops/cross_entropy.h"
#include "ops/graph.h"

namespace automodel::parallel {
namespace {

class VocabularyLossBackward : public ops::Backward {
 public:
  VocabularyLossBackward(at::Tensor gradient, std::vector<std::int64_t> shape)
      : gradient_(std::move(gradient)), shape_(std::move(shape)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    ops::NoGraph guard;
    if (!gradient_.is_cpu() || gradients[0].item<double>() != 1.0)
      gradient_.mul_(gradients[0].to(gradient_.scalar_type()));
    return {gradient_.view(shape_)};
  }
  const char* name() const override { return "vocabulary_loss"; }

 private:
  at::Tensor gradient_;
  std::vector<std::int64_t> shape_;
};

}  // namespace

VocabularyShare VocabularyShare::of(std::int64_t size, int ranks, int rank) {
  const auto each = (size + ranks - 1) / ranks;
  const auto first = std::min(size, rank * each);
  return {first, std::min(size, first + each) - first};
}

at::Tensor vocabulary_loss(comm::Communicator& group, const at::Tensor& logits, const at::Tensor& labels, double scale,
                           std::int64_t ignore, const VocabularyShare& share) {
  const bool recorded = ops::records({logits});
  at::Tensor matrix, loss;
  {
    ops::NoGraph guard;
    matrix = logits.detach().reshape({-1, logits.size(-1)}).contiguous();
    const auto flat = labels.reshape({-1}).contiguous();
    const auto mine = ops::logit_statistics(matrix, flat, share.first, share.rows);
    auto all = at::empty({group.size(), mine.size(0), mine.size(1)}, mine.options());
    group.all_gather(all, mine)->wait();
    const auto joined = ops::join_statistics(all, flat, scale, ignore);
    loss = joined.losses.sum() * scale;
    if (recorded) ops::logit_gradient(matrix, flat, share.first, share.rows, joined.shares, scale);
  }
  if (recorded) ops::record({loss}, {logits}, std::make_unique<VocabularyLossBackward>(matrix, logits.sizes().vec()));
  return loss;
}

}  // namespace automodel::parallel
