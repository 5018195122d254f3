#include "ops/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/topk.h>

#include "ops/graph.h"
#include "ops/kernels/device.h"

namespace automodel::ops {

at::Tensor top_k(const at::Tensor& scores, std::int64_t k) {
  constexpr std::int64_t kMostColumns = 1024;
  const NoGraph guard;
  const auto* device = device_kernels(scores);
  if (device == nullptr || scores.scalar_type() == at::kBFloat16 || scores.size(1) > kMostColumns)
    return std::get<1>(at::topk(scores, k));
  const auto rows = scores.contiguous();
  auto chosen = at::empty({scores.size(0), k}, scores.options().dtype(at::kLong));
  device->top_k(element_of(rows), rows.const_data_ptr(), rows.size(0), rows.size(1), k,
                chosen.mutable_data_ptr<std::int64_t>(), device->stream());
  return chosen;
}

SortedChoices sort_choices(const at::Tensor& choices, std::int64_t experts) {
  const NoGraph guard;
  const auto flat = choices.reshape({-1}).contiguous();
  const auto k = choices.size(1);
  // device_kernels() knows no integer types; a device with floating-point kernels also has the sort.
  const auto* device = device_kernels(at::empty({0}, flat.options().dtype(at::kFloat)));
  if (device == nullptr) {
    const auto order = at::argsort(flat, /*stable=*/true, 0, false);
    SortedChoices out{order.floor_divide(k), at::empty_like(order), at::bincount(flat, {}, experts)};
    out.place.scatter_(0, order, at::arange(order.size(0), order.options()));
    return out;
  }
  SortedChoices out{at::empty_like(flat), at::empty_like(flat), at::empty({experts}, flat.options())};
  device->sort_choices(flat.const_data_ptr<std::int64_t>(), flat.numel(), k, experts,
                       out.from.mutable_data_ptr<std::int64_t>(), out.place.mutable_data_ptr<std::int64_t>(),
                       out.counts.mutable_data_ptr<std::int64_t>(), device->stream());
  return out;
}

}  // namespace automodel::ops
