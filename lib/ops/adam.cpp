#include "ops/adam.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>

#include "ops/element_type.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

constexpr std::int64_t kElementsPerTask = 1 << 16;
constexpr std::int64_t kSlice = 1 << 24;  ///< elements processed at one time where there is no kernel, to bound
                                          ///< temporaries

template <class T>
const OptimizerKernels<T>& optimizer_kernels() {
  if constexpr (std::is_same_v<T, double>)
    return kernels().optimizer_double;
  else
    return kernels().optimizer_float;
}

bool has_optimizer_kernel(const at::Tensor& x) {
  return has_kernel(x) && x.scalar_type() != at::kBFloat16;
}

cuda::AdamPiece on_device(const AdamPiece& piece) {
  return {.value = piece.value.mutable_data_ptr(),
          .gradient = piece.gradient.const_data_ptr(),
          .mean = piece.mean.mutable_data_ptr(),
          .square = piece.square.mutable_data_ptr(),
          .max_square = piece.max_square.defined() ? piece.max_square.mutable_data_ptr() : nullptr,
          .copy = nullptr,
          .count = piece.value.numel(),
          .lr = piece.lr,
          .weight_decay = piece.weight_decay};
}

template <class T>
void run_adam(at::Tensor& value, const at::Tensor& gradient, at::Tensor& mean, at::Tensor& square,
              at::Tensor& max_square, const AdamStep& step) {
  T* v = value.mutable_data_ptr<T>();
  const T* g = gradient.const_data_ptr<T>();
  T* m = mean.mutable_data_ptr<T>();
  T* s = square.mutable_data_ptr<T>();
  T* x = max_square.defined() ? max_square.mutable_data_ptr<T>() : nullptr;
  at::parallel_for(0, value.numel(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    optimizer_kernels<T>().adam(v + begin, g + begin, m + begin, s + begin, x != nullptr ? x + begin : nullptr,
                                end - begin, step);
  });
}

template <class T>
double run_sum(const at::Tensor& x) {
  // Tasks of a fixed size, summed in order: the result does not depend on the number of threads.
  const auto tasks = (x.numel() + kElementsPerTask - 1) / kElementsPerTask;
  std::vector<double> part(static_cast<std::size_t>(tasks));
  const T* data = x.const_data_ptr<T>();
  at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto task = begin; task < end; ++task) {
      const auto first = task * kElementsPerTask;
      part[static_cast<std::size_t>(task)] =
          optimizer_kernels<T>().sum_of_squares(data + first, std::min(kElementsPerTask, x.numel() - first));
    }
  });
  double total = 0;
  for (const double each : part) total += each;
  return total;
}

}  // namespace

void adam(at::Tensor value, const at::Tensor& gradient, at::Tensor mean, at::Tensor square, at::Tensor max_square,
          const AdamStep& step) {
  NoGraph guard;
  if (value.numel() == 0) return;
  if (computed_together(value))
    return adam({{value, gradient, mean, square, max_square, step.lr, step.weight_decay}}, step);
  if (has_optimizer_kernel(value)) {
    if (value.scalar_type() == at::kDouble)
      run_adam<double>(value, gradient, mean, square, max_square, step);
    else
      run_adam<float>(value, gradient, mean, square, max_square, step);
    return;
  }
  if (value.numel() > kSlice) {
    for (std::int64_t first = 0; first < value.numel(); first += kSlice) {
      const auto part = [&](const at::Tensor& whole) {
        return whole.defined() ? whole.narrow(0, first, std::min(kSlice, whole.numel() - first)) : whole;
      };
      adam(part(value), part(gradient), part(mean), part(square), part(max_square), step);
    }
    return;
  }
  auto g = gradient * (step.maximize ? -step.gradient_scale : step.gradient_scale);
  if (!step.decoupled && step.weight_decay != 0) g = g + value * step.weight_decay;
  mean.mul_(step.beta1).add_(g, 1 - step.beta1);
  square.mul_(step.beta2).addcmul_(g, g, 1 - step.beta2);
  if (max_square.defined()) at::maximum_out(max_square, max_square, square);
  if (step.decoupled) value.mul_(1 - step.lr * step.weight_decay);
  const auto root =
      (max_square.defined() ? max_square : square).sqrt().mul_(1 / std::sqrt(step.correction2)).add_(step.eps);
  value.addcdiv_(mean, root, -step.lr / step.correction1);
}

bool computed_together(const at::Tensor& x) {
  return device_kernels(x) != nullptr && x.scalar_type() != at::kBFloat16;
}

void adam(const std::vector<AdamPiece>& pieces, AdamStep step) {
  NoGraph guard;
  std::map<std::pair<cuda::Element, cuda::Element>, std::vector<cuda::AdamPiece>> tables;
  std::vector<at::Tensor> kept;  // owns converted gradients until the launches
  const DeviceKernels* device = nullptr;
  for (auto piece : pieces) {
    if (!computed_together(piece.value)) {
      step.lr = piece.lr;
      step.weight_decay = piece.weight_decay;
      adam(piece.value, piece.gradient.to(piece.value.scalar_type()), piece.mean, piece.square, piece.max_square, step);
      continue;
    }
    device = device_kernels(piece.value);
    if (device_kernels(piece.gradient) == nullptr)
      kept.emplace_back(piece.gradient = piece.gradient.to(piece.value.scalar_type()));
    tables[{element_of(piece.value), element_of(piece.gradient)}].push_back(on_device(piece));
  }
  for (const auto& [types, table] : tables) device->adam(types.first, types.second, table, step, device->stream());
}

void SquareSums::add(std::size_t group, const at::Tensor& x) {
  if (x.numel() == 0) return;
  if (device_kernels(x) != nullptr && x.is_contiguous())
    waiting_[group].push_back(x);
  else
    sums_[group] += sum_of_squares(x);
}

std::vector<double> SquareSums::totals() {
  NoGraph guard;
  std::vector<std::size_t> groups;
  std::vector<at::Tensor> results;
  for (std::size_t group = 0; group < waiting_.size(); ++group) {
    std::map<cuda::Element, std::vector<cuda::SquaresPiece>> tables;
    for (const auto& x : waiting_[group]) tables[element_of(x)].push_back({x.const_data_ptr(), x.numel()});
    for (const auto& [element, table] : tables) {
      const auto& like = waiting_[group].front();
      const auto* device = device_kernels(like);
      const auto options = like.options().dtype(at::kDouble);
      const auto partial = at::empty({device->square_parts(table)}, options);
      groups.push_back(group);
      results.push_back(at::empty({1}, options));
      device->sum_of_squares(element, table, partial.mutable_data_ptr<double>(),
                             results.back().mutable_data_ptr<double>(), device->stream());
    }
    waiting_[group].clear();
  }
  if (!results.empty()) {
    const auto together = at::cat(results).cpu();
    for (std::size_t i = 0; i < groups.size(); ++i) sums_[groups[i]] += together.const_data_ptr<double>()[i];
  }
  return sums_;
}

double sum_of_squares(const at::Tensor& x) {
  NoGraph guard;
  if (x.numel() == 0) return 0;
  if (device_kernels(x) != nullptr && x.is_contiguous()) {
    SquareSums sums(1);
    sums.add(0, x);
    return sums.totals()[0];
  }
  if (has_optimizer_kernel(x) && x.is_contiguous())
    return x.scalar_type() == at::kDouble ? run_sum<double>(x) : run_sum<float>(x);
  const auto flat = x.reshape(-1);
  at::Tensor sum;  // on the device until the end
  for (std::int64_t first = 0; first < flat.numel(); first += kSlice) {
    const auto part = flat.narrow(0, first, std::min(kSlice, flat.numel() - first)).to(at::kDouble).square().sum();
    sum = sum.defined() ? sum + part : part;
  }
  return sum.item<double>();
}

}  // namespace automodel::ops
