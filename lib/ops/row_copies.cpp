#include "ops/row_copies.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>

#include "ops/graph.h"

namespace automodel::ops {
namespace {

at::Tensor copied(const at::Tensor& x, const RowCopies& copies) {
  return at::index_select(x, 0, copies.source);
}

at::Tensor summed(const at::Tensor& x, const RowCopies& copies, std::int64_t rows) {
  const auto sorted = at::index_select(x, 0, copies.places);
  return sorted.size(0) == rows ? sorted : sorted.view({rows, -1, x.size(1)}).sum(1);
}

class CopyBackward : public Backward {
 public:
  CopyBackward(RowCopies copies, std::int64_t rows) : copies_(std::move(copies)), rows_(rows) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    return {summed(gradients[0], copies_, rows_)};
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

at::Tensor summed_rows(const at::Tensor& x, const RowCopies& copies, std::int64_t k) {
  at::Tensor out;
  {
    NoGraph guard;
    out = summed(x.detach(), copies, x.size(0) / k);
  }
  if (records({x})) record({out}, {x}, std::make_unique<SumBackward>(copies));
  return out;
}

}  // namespace automodel::ops
