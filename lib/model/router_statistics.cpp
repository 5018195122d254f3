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
    const auto slope = statistics_->probability_gradient().to(probabilities_.device());
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

void RouterStatistics::put(int layer, at::Tensor counts, at::Tensor probabilities, double rows) {
  layers_[layer] = {std::move(counts), std::move(probabilities), rows};
}

at::Tensor RouterStatistics::sums() const {
  const ops::NoGraph guard;
  auto counts = at::zeros({experts_}, doubles()), probabilities = at::zeros({experts_}, doubles());
  double rows = 0;
  for (const auto& [number, layer] : layers_) {
    counts += layer.counts;
    probabilities += layer.probabilities;
    rows += layer.rows;
  }
  return at::cat({counts, probabilities, at::full({1}, rows, doubles())});
}

double RouterStatistics::loss() const {
  const ops::NoGraph guard;
  const auto sums = totals();
  const double rows = sums[2 * experts_].item<double>();
  if (rows == 0) return 0;
  const double product = (sums.narrow(0, 0, experts_) * sums.narrow(0, experts_, experts_)).sum().item<double>();
  return weight_ * coefficient_ * static_cast<double>(experts_) * product / (rows * rows);
}

at::Tensor RouterStatistics::probability_gradient() const {
  const ops::NoGraph guard;
  const auto sums = totals();
  const double rows = sums[2 * experts_].item<double>();
  if (rows == 0) return at::zeros({experts_}, doubles());
  return sums.narrow(0, 0, experts_) * (seed_ * weight_ * coefficient_ * static_cast<double>(experts_) / (rows * rows));
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
    const double rows = mask.defined() ? mask.sum().item<double>() : static_cast<double>(logits.size(0));
    statistics->put(layer, counts.cpu(), sums.cpu(), rows);
  }
  if (ops::records({logits}))
    ops::record({out}, {logits},
                std::make_unique<BalancedBackward>(probabilities, mask, logits.scalar_type(), std::move(statistics)));
  return out;
}

}  // namespace automodel::model
