#include "ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/sort.h>

#include "ops/graph.h"
#include "ops/kernels/device.h"

namespace automodel::ops {
namespace {

class EmbeddingBackward : public Backward {
 public:
  EmbeddingBackward(at::Tensor rows, at::Tensor outside, Parameter& table, std::int64_t padding)
      : rows_(std::move(rows)), outside_(std::move(outside)), table_(table), padding_(padding) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined() || !table_.trained()) return {at::Tensor()};
    NoGraph guard;
    if (add_on_device(gradients[0])) return {at::Tensor()};
    auto gradient = gradients[0].reshape({rows_.size(0), -1}).to(table_.grad.scalar_type());
    if (outside_.defined()) gradient = gradient.masked_fill(outside_.unsqueeze(1), 0);
    if (padding_ >= 0) gradient = gradient.masked_fill(rows_.eq(padding_).unsqueeze(1), 0);
    if (!gradient.is_cpu()) {  // index_add_ is nondeterministic there
      accumulate(table_, at::embedding_dense_backward(gradient, rows_, table_.grad.size(0), -1, false));
      return {at::Tensor()};
    }
    if (table_.fresh) table_.grad.zero_();
    table_.fresh = false;
    table_.grad.index_add_(0, rows_, gradient);
    return {at::Tensor()};
  }
  const char* name() const override { return "embedding"; }

 private:
  /// Uses the device's kernel, which sums in token order; false if there is none.
  bool add_on_device(const at::Tensor& gradient) {
    const auto* device = device_kernels(gradient);
    if (device == nullptr || device_kernels(table_.grad) == nullptr || !table_.grad.is_contiguous()) return false;
    const auto in = gradient.reshape({rows_.size(0), -1}).contiguous();
    const auto ids = outside_.defined() ? rows_.masked_fill(outside_, -1) : rows_;
    const auto [sorted, order] = at::sort(ids, /*stable=*/true, 0, false);
    if (table_.fresh) table_.grad.zero_();
    table_.fresh = false;
    device->embedding_backward(element_of(in), element_of(table_.grad),
                               {.gradient = in.const_data_ptr(),
                                .sorted = sorted.const_data_ptr<std::int64_t>(),
                                .order = order.const_data_ptr<std::int64_t>(),
                                .count = in.size(0),
                                .width = in.size(1),
                                .table_rows = table_.grad.size(0),
                                .padding = padding_,
                                .table = table_.grad.mutable_data_ptr()},
                               device->stream());
    return true;
  }

  at::Tensor rows_, outside_;
  Parameter& table_;
  std::int64_t padding_;
};

at::Tensor look_up(const at::Tensor& ids, const at::Tensor& rows, const at::Tensor& outside, Parameter& table,
                   const at::Tensor& anchor, std::int64_t padding) {
  at::Tensor out;
  {
    NoGraph guard;
    out = at::index_select(table.value, 0, rows);
    if (outside.defined()) out.masked_fill_(outside.unsqueeze(1), 0);
    auto shape = ids.sizes().vec();
    shape.push_back(table.value.size(1));
    out = out.view(shape);
  }
  if (records({anchor})) record({out}, {anchor}, std::make_unique<EmbeddingBackward>(rows, outside, table, padding));
  return out;
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids, Parameter& table, const at::Tensor& anchor, std::int64_t padding) {
  return look_up(ids, ids.reshape({-1}), at::Tensor(), table, anchor, padding);
}

at::Tensor embedding_shard(const at::Tensor& ids, Parameter& table, const at::Tensor& anchor, std::int64_t first,
                           std::int64_t padding) {
  const auto rows = ids.reshape({-1}) - first;
  const auto outside = at::logical_or(rows.lt(0), rows.ge(table.value.size(0)));
  return look_up(ids, rows.masked_fill(outside, 0), outside, table, anchor, padding - first);
}

}  // namespace automodel::ops
