#include "ops/row_copies.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>

#include "ops/graph.h"
#include "ops/kernels/device.h"

namespace automodel::ops {
namespace {

at::Tensor copied(const at::Tensor& x, const RowCopies& copies) {
  return at::index_select(x, 0, copies.source);
}

/// Arguments of the device's kernels; `out` is undefined in the backward pass.
cuda::RowSums sums_of(const at::Tensor& x, const RowCopies& copies, const at::Tensor& weights, const at::Tensor& out,
                      std::int64_t rows) {
  return {.rows = x.const_data_ptr(),
          .weights = weights.defined() ? weights.const_data_ptr() : nullptr,
          .places = copies.places.const_data_ptr<std::int64_t>(),
          .out = out.defined() ? out.mutable_data_ptr() : nullptr,
          .tokens = rows,
          .k = rows > 0 ? x.size(0) / rows : 1,
          .width = x.size(1)};
}

at::Tensor summed(const at::Tensor& x, const RowCopies& copies, std::int64_t rows, const at::Tensor& weights) {
  if (const auto* device = device_kernels(x)) {
    auto out = at::empty({rows, x.size(1)}, x.options());
    device->sum_rows(element_of(x), sums_of(x, copies, weights, out, rows), device->stream());
    return out;
  }
  const auto sorted = at::index_select(x, 0, copies.places);
  if (weights.defined()) return (sorted.view({rows, weights.size(1), x.size(1)}) * weights.unsqueeze(2)).sum(1);
  return sorted.size(0) == rows ? sorted : sorted.view({rows, -1, x.size(1)}).sum(1);
}

class CopyBackward : public Backward {
 public:
  CopyBackward(RowCopies copies, std::int64_t rows) : copies_(std::move(copies)), rows_(rows) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    return {summed(gradients[0].contiguous(), copies_, rows_, {})};
  }
  const char* name() const override { return "copied_rows"; }

 private:
  RowCopies copies_;
  std::int64_t rows_;
};

class SumBackward : public Backward {
 public:
  explicit SumBackward(RowCopies copies) : copies_(std::move(copies)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    return {copied(gradients[0], copies_)};
  }
  const char* name() const override { return "summed_rows"; }

 private:
  RowCopies copies_;
};

class WeightedSumBackward : public Backward {
 public:
  WeightedSumBackward(at::Tensor x, at::Tensor weights, RowCopies copies)
      : x_(std::move(x)), weights_(std::move(weights)), copies_(std::move(copies)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor()};
    NoGraph guard;
    const auto dout = gradients[0].contiguous();
    if (const auto* device = device_kernels(x_)) {
      auto drows = at::empty_like(x_), dweights = at::empty_like(weights_);
      device->sum_rows_backward(element_of(x_), sums_of(x_, copies_, weights_, {}, dout.size(0)),
                                {dout.const_data_ptr(), drows.mutable_data_ptr(), dweights.mutable_data_ptr()},
                                device->stream());
      return {drows, dweights};
    }
    const auto wide = dout.unsqueeze(1);
    const auto sorted = at::index_select(x_, 0, copies_.places).view({dout.size(0), weights_.size(1), dout.size(1)});
    const auto drows = (wide * weights_.unsqueeze(2)).view_as(x_);
    return {at::index_select(drows, 0, permutation(copies_.places).places), (wide * sorted).sum(2)};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override {
    for (auto* each : {&x_, &weights_}) visit(*each);
  }
  const char* name() const override { return "weighted_rows"; }

 private:
  at::Tensor x_, weights_;
  RowCopies copies_;
};

}  // namespace

RowCopies permutation(const at::Tensor& source) {
  NoGraph guard;
  auto places = at::empty_like(source);
  places.scatter_(0, source, at::arange(source.size(0), source.options()));
  return {source, places};
}

at::Tensor copied_rows(const at::Tensor& x, const RowCopies& copies) {
  at::Tensor out;
  {
    NoGraph guard;
    out = copied(x.detach(), copies);
  }
  if (records({x})) record({out}, {x}, std::make_unique<CopyBackward>(copies, x.size(0)));
  return out;
}

at::Tensor summed_rows(const at::Tensor& x, const RowCopies& copies, std::int64_t k, const at::Tensor& weights) {
  const auto rows = x.detach().contiguous(), scales = weights.defined() ? weights.detach().contiguous() : weights;
  at::Tensor out;
  {
    NoGraph guard;
    out = summed(rows, copies, x.size(0) / k, scales);
  }
  if (weights.defined() && records({x, weights}))
    record({out}, {x, weights}, std::make_unique<WeightedSumBackward>(rows, scales, copies));
  else if (records({x}))
    record({out}, {x}, std::make_unique<SumBackward>(copies));
  return out;
}

}  // namespace automodel::ops
