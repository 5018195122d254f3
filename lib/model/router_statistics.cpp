#include "model/router_statistics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include "ops/graph.h"

namespace automodel::model {
namespace {

at::TensorOptions doubles() {
  return at::TensorOptions().dtype(at::kDouble);
}

class BalancedBackward : public ops::Backward {
 public:
  BalancedBackward(at::Tensor probabilities, at::Tensor real, at::ScalarType type,
                   std::shared_ptr<RouterStatistics> statistics)
      : probabilities_(std::move(probabilities)),
        real_(std::move(real)),
        type_(type),
        statistics_(std::move(statistics)) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    ops::NoGraph guard;
    const auto slope = statistics_->probability_gradient();
    auto joined = probabilities_ * (slope - (probabilities_ * slope).sum(-1, true));
    if (real_.defined()) joined = joined * real_.unsqueeze(1);
    if (!gradients[0].defined()) return {joined.to(type_)};
    return {gradients[0] + joined.to(type_)};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(probabilities_); }
  const char* name() const override { return "balanced"; }

 private:
  at::Tensor probabilities_, real_;
  at::ScalarType type_;
  std::shared_ptr<RouterStatistics> statistics_;
};

}  // namespace

at::Tensor RouterStatistics::sums() const {
  const ops::NoGraph guard;
  auto out = at::zeros({2 * experts_ + 1}, doubles().device(device_));
  for (const auto& [number, layer] : layers_) out += layer;
  return out;
}

at::Tensor RouterStatistics::by_rows(const at::Tensor& numerator, const at::Tensor& sums) const {
  const auto rows = sums.select(0, 2 * experts_);
  return (numerator / (rows * rows)).masked_fill(rows.eq(0), 0);
}

at::Tensor RouterStatistics::loss() const {
  const ops::NoGraph guard;
  const auto sums = totals();
  const double factor = weight_ * coefficient_ * static_cast<double>(experts_);
  return by_rows((counts(sums) * probabilities(sums)).sum() * factor, sums);
}

at::Tensor RouterStatistics::probability_gradient() const {
  const ops::NoGraph guard;
  const auto sums = totals();
  const double factor = seed_ * weight_ * coefficient_ * static_cast<double>(experts_);
  return counts(sums) * by_rows(at::full({}, factor, sums.options()), sums);
}

at::Tensor balanced(const at::Tensor& logits, const at::Tensor& chosen, const at::Tensor& real, int layer,
                    std::shared_ptr<RouterStatistics> statistics) {
  at::Tensor out, probabilities, mask;
  {
    ops::NoGraph guard;
    out = logits.detach();
    probabilities = at::softmax(out.to(at::kDouble), -1);
    const auto experts = logits.size(-1);
    auto ones = at::full(chosen.sizes(), 1.0, doubles().device(logits.device()));
    if (real.defined()) {
      mask = real.to(at::kDouble);
      ones = ones * mask.unsqueeze(1);
    }
    const auto counts = at::zeros({experts}, ones.options()).index_add_(0, chosen.reshape({-1}), ones.reshape({-1}));
    const auto sums = (mask.defined() ? probabilities * mask.unsqueeze(1) : probabilities).sum(0);
    const auto rows = mask.defined() ? mask.sum().view({1}) : at::full({1}, logits.size(0), ones.options());
    statistics->put(layer, at::cat({counts, sums, rows}));
  }
  if (ops::records({logits}))
    ops::record({out}, {logits},
                std::make_unique<BalancedBackward>(probabilities, mask, logits.scalar_type(), std::move(statistics)));
  return out;
}

}  // namespace automodel::model
