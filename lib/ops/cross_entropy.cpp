#include "ops/cross_entropy.h"

#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>

#include "base/error.h"
#include "ops/element_type.h"
#include "ops/factor.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

constexpr const char* kNoCap = "only a device's kernel caps logits itself";

template <class T>
const CrossEntropyKernels<T>& loss_kernels() {
  return pick<T>(kernels().cross_entropy_float, kernels().cross_entropy_double, kernels().cross_entropy_bfloat16);
}

cuda::Logits logits_of(const at::Tensor& logits, const at::Tensor& labels, std::int64_t first, std::int64_t columns,
                       double cap) {
  return {.logits = logits.mutable_data_ptr(),
          .stride = logits.stride(0),
          .rows = logits.size(0),
          .columns = columns,
          .first = first,
          .labels = labels.const_data_ptr<std::int64_t>(),
          .cap = cap};
}

/// Returns the unscaled sum; with `gradient`, logits [rows, columns] become scale * (softmax - onehot).
double fused(at::Tensor logits, const at::Tensor& labels, double scale, std::int64_t ignore, bool gradient) {
  const auto rows = logits.size(0), columns = logits.size(1);
  const auto parts = parts_of_sum(rows, 8);
  std::vector<double> sums(static_cast<std::size_t>(parts), 0.0);
  for_type(logits.scalar_type(), [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    T* data = logits.mutable_data_ptr<T>();
    const auto* label = labels.const_data_ptr<std::int64_t>();
    for_parts(rows, parts, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      sums[static_cast<std::size_t>(part)] =
          loss_kernels<T>().run(data + begin * columns, label + begin, end - begin, columns, ignore, scale, gradient);
    });
  });
  double total = 0;
  for (const double each : sums) total += each;
  return total;
}

at::Tensor composed(at::Tensor logits, const at::Tensor& labels, const Factor& scale, std::int64_t ignore,
                    bool gradient) {
  const auto logs = at::log_softmax(logits, -1, compute_type(logits.scalar_type()));
  const auto counted = labels.ne(ignore);
  const auto safe = labels.masked_fill(counted.logical_not(), 0).unsqueeze(1);
  const auto picked = logs.gather(1, safe).squeeze(1).masked_fill(counted.logical_not(), 0);
  auto total = picked.sum(at::kDouble).neg();
  if (gradient) {
    auto soft = logs.exp();
    soft.scatter_add_(1, safe, at::full_like(safe, -1, soft.options()));
    soft.mul_(scale.value).masked_fill_(counted.logical_not().unsqueeze(1), 0);
    if (scale.device.defined()) soft.mul_(scale.device);
    logits.copy_(soft);
  }
  return total;
}

class CrossEntropyBackward : public Backward {
 public:
  CrossEntropyBackward(at::Tensor gradient, std::vector<std::int64_t> shape)
      : gradient_(std::move(gradient)), shape_(std::move(shape)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    if (!has_kernel(gradient_) || gradients[0].item<double>() != 1.0)
      gradient_.mul_(gradients[0].to(gradient_.scalar_type()));
    return {gradient_.view(shape_)};
  }
  const char* name() const override { return "cross_entropy"; }

 private:
  at::Tensor gradient_;
  std::vector<std::int64_t> shape_;
};

}  // namespace

at::Tensor cross_entropy_in_place(at::Tensor logits, const at::Tensor& labels, const Factor& scale, std::int64_t ignore,
                                  bool gradient, double cap) {
  if (const auto* device = device_kernels(logits); device != nullptr && logits.is_contiguous()) {
    const auto losses = at::empty({logits.size(0)}, logits.options().dtype(at::kDouble));
    device->cross_entropy(element_of(logits), logits_of(logits, labels, 0, logits.size(1), cap),
                          losses.mutable_data_ptr<double>(), ignore, scale.value, scale.address(), gradient,
                          device->stream());
    return losses.sum();
  }
  AUTOMODEL_CHECK(cap == 0, kNoCap);
  if (has_kernel(logits) && logits.is_contiguous() && !scale.device.defined())
    return at::full({}, fused(logits, labels, scale.value, ignore, gradient), at::TensorOptions().dtype(at::kDouble));
  return composed(logits, labels, scale, ignore, gradient);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const Factor& scale, std::int64_t ignore) {
  const bool recorded = records({logits});
  at::Tensor matrix, loss;
  {
    NoGraph guard;
    matrix = logits.detach().reshape({-1, logits.size(-1)});
    const auto flat = labels.reshape({-1}).contiguous();
    loss = scale.of(cross_entropy_in_place(matrix, flat, scale, ignore, recorded));
  }
  if (recorded) record({loss}, {logits}, std::make_unique<CrossEntropyBackward>(matrix, logits.sizes().vec()));
  return loss;
}

at::Tensor logit_statistics(const at::Tensor& logits, const at::Tensor& labels, std::int64_t first,
                            std::int64_t columns, double cap) {
  const auto type = compute_type(logits.scalar_type());
  auto out = at::empty({logits.size(0), 3}, logits.options().dtype(type));
  if (const auto* device = device_kernels(logits)) {
    device->logit_statistics(element_of(logits), logits_of(logits, labels, first, columns, cap), out.mutable_data_ptr(),
                             device->stream());
    return out;
  }
  AUTOMODEL_CHECK(cap == 0, kNoCap);
  if (has_kernel(logits)) {
    for_type(logits.scalar_type(), [&](auto* tag) {
      using T = std::remove_pointer_t<decltype(tag)>;
      const T* data = logits.const_data_ptr<T>();
      const auto* label = labels.const_data_ptr<std::int64_t>();
      auto* result = out.mutable_data_ptr<typename Compute<T>::type>();
      const auto stride = logits.stride(0);
      at::parallel_for(0, logits.size(0), 8, [&](std::int64_t begin, std::int64_t end) {
        loss_kernels<T>().statistics(data + begin * stride, stride, label + begin, end - begin, columns, first,
                                     result + 3 * begin);
      });
    });
    return out;
  }
  out.zero_();
  out.select(1, 0).fill_(-std::numeric_limits<double>::infinity());
  if (columns == 0) return out;
  const auto part = logits.narrow(1, 0, columns).to(type);
  const auto largest = part.amax(1, true);
  const auto place = labels - first;
  const auto here = place.ge(0).logical_and(place.lt(columns));
  const auto chosen = part.gather(1, place.masked_fill(here.logical_not(), 0).unsqueeze(1)).squeeze(1);
  out.select(1, 0).copy_(largest.squeeze(1));
  out.select(1, 1).copy_((part - largest).exp_().sum(1));
  out.select(1, 2).copy_(chosen.masked_fill(here.logical_not(), 0));
  return out;
}

JoinedStatistics join_statistics(const at::Tensor& statistics, const at::Tensor& labels, double scale,
                                 std::int64_t ignore) {
  const auto largest = statistics.select(2, 0), sums = statistics.select(2, 1), chosen = statistics.select(2, 2);
  const auto top = largest.amax(0);  // [rows]
  const auto sum = (sums * (largest - top).exp_()).sum(0);
  const auto ignored = labels.eq(ignore);
  auto losses = top.to(at::kDouble) + sum.to(at::kDouble).log() - chosen.sum(0).to(at::kDouble);
  auto shares = at::empty({top.size(0), 2}, top.options());
  shares.select(1, 0).copy_(top);
  shares.select(1, 1).copy_((scale / sum).masked_fill_(ignored, 0));
  return {losses.masked_fill_(ignored, 0), shares};
}

void logit_gradient(at::Tensor logits, const at::Tensor& labels, std::int64_t first, std::int64_t columns,
                    const at::Tensor& shares, double scale, double cap) {
  if (const auto* device = device_kernels(logits)) {
    device->logit_gradient(element_of(logits), logits_of(logits, labels, first, columns, cap), shares.const_data_ptr(),
                           scale, device->stream());
    return;
  }
  AUTOMODEL_CHECK(cap == 0, kNoCap);
  if (has_kernel(logits)) {
    for_type(logits.scalar_type(), [&](auto* tag) {
      using T = std::remove_pointer_t<decltype(tag)>;
      T* data = logits.mutable_data_ptr<T>();
      const auto* label = labels.const_data_ptr<std::int64_t>();
      const auto* share = shares.const_data_ptr<typename Compute<T>::type>();
      const auto stride = logits.stride(0);
      at::parallel_for(0, logits.size(0), 8, [&](std::int64_t begin, std::int64_t end) {
        loss_kernels<T>().gradient(data + begin * stride, stride, label + begin, end - begin, columns, first,
                                   share + 2 * begin, scale);
      });
    });
    return;
  }
  const auto part = logits.narrow(1, 0, columns);
  auto soft = (part.to(shares.scalar_type()) - shares.narrow(1, 0, 1)).exp_().mul_(shares.narrow(1, 1, 1));
  const auto place = labels - first;
  const auto here =
      place.ge(0).logical_and(place.lt(columns)).logical_and(shares.select(1, 1).ne(0));  // factor 0: ignored
  if (columns > 0)
    soft.scatter_add_(1, place.masked_fill(here.logical_not(), 0).unsqueeze(1),
                      (here.to(soft.scalar_type()) * -scale).unsqueeze(1));
  part.copy_(soft);
  logits.narrow(1, columns, logits.size(1) - columns).zero_();
}

}  // namespace automodel::ops
