#include "ops/parameter.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "base/error.h"
#include "ops/graph.h"
#include "ops/grouped_product.h"
#include "ops/host_matmul.h"
#include "ops/kernels/device.h"

namespace automodel::ops {
namespace {

thread_local WeightGradients* current_queue = nullptr;  // per thread, because loopback ranks are threads of one
                                                        // process

/// One matrix over parts that are adjacent in one storage; undefined otherwise.
at::Tensor joined(const std::vector<at::Tensor>& parts) {
  const auto& first = parts.front();
  if (!first.defined() || !first.is_contiguous()) return {};
  std::int64_t rows = 0;
  std::int64_t offset = first.storage_offset();
  for (const auto& part : parts) {
    if (!part.defined() || !part.is_contiguous() || part.storage_offset() != offset ||
        !part.storage().is_alias_of(first.storage()))
      return {};
    offset += part.numel();
    rows += part.size(0);
  }
  return first.as_strided({rows, first.size(1)}, {first.size(1), 1});
}

/// out = a^T b if fresh, otherwise out += a^T b. With `asked`, low-precision operands must be accumulated in `out`'s
/// type; without, they are on a GPU, where rounding would cost another pass over `out`, and may be elsewhere.
void add_product(at::Tensor out, bool fresh, const at::Tensor& a, const at::Tensor& b, bool asked) {
  if (host_matmul(out, fresh, a, b)) return;
  // Transposing one column leaves a stride of 1 in both dimensions, from which LibTorch takes a leading dimension that
  // cuBLASLt refuses (the gate of shared experts, a classifier of one label).
  const auto transposed = !a.is_cpu() && a.size(1) == 1 ? a.contiguous().view({1, a.size(0)}) : a.t();
  const auto type = out.scalar_type();
  // LibTorch's GEMMs on a GPU widen 16-bit operands to float32, and nothing else.
  const bool widens = type == at::kFloat && at::isReducedFloatingType(a.scalar_type());
  const bool on_gpu = !a.is_cpu() || device_kernels(a) != nullptr;
  const bool fused = on_gpu ? widens : asked;
  if (type != a.scalar_type() && fused && !a.is_cpu()) {
    if (fresh)
      at::mm_out(out, transposed, b, type);
    else
      at::addmm_out(out, out, transposed, b, type);
  } else if (type != a.scalar_type() && fused) {  // float32 represents products of two bfloat16 or float16 numbers
                                                  // exactly
    add_product(out, fresh, a.to(type), b.to(type), false);
  } else if (type != a.scalar_type()) {  // low-precision operands, float32 gradient
    const auto product = at::mm(transposed, b);
    if (fresh)
      out.copy_(product);
    else
      out.add_(product);
  } else if (fresh) {
    at::mm_out(out, transposed, b);
  } else {
    at::addmm_out(out, out, transposed, b);
  }
}

/// True if any weight's gradient is an 8-bit GEMM.
bool any_float8(const Parameters& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const Parameter* each) { return each->float8 && each->float8->has_weight_gradients(); });
}

class UseBackward : public Backward {
 public:
  explicit UseBackward(Parameter& parameter) : parameter_(parameter) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (gradients[0].defined()) accumulate(parameter_, gradients[0]);
    return {at::Tensor()};
  }
  const char* name() const override { return "use"; }

 private:
  Parameter& parameter_;
};

}  // namespace

std::int64_t Parameter::numel() const {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  return count;
}

at::Tensor Parameter::dense() const {
  AUTOMODEL_CHECK(here(), "parameter " + name + " is not here");
  if (!quantized) return value;
  NoGraph guard;
  return ops::dense(*quantized, packed).view(shape);
}

void accumulate(Parameter& parameter, const at::Tensor& contribution) {
  if (!parameter.trained()) return;
  NoGraph guard;
  if (parameter.fresh)
    parameter.grad.copy_(contribution);
  else
    parameter.grad.add_(contribution);
  parameter.fresh = false;
}

at::Tensor ParameterRows::value() const {
  const auto whole = parameter->dense();
  return count > 0 ? whole.narrow(dim, first, count) : whole;
}

void ParameterRows::accumulate(const at::Tensor& contribution) const {
  auto& whole = *parameter;
  if (!whole.trained()) return;
  NoGraph guard;
  if (count == 0) return ops::accumulate(whole, contribution.view(whole.shape));
  if (whole.fresh) whole.grad.zero_();
  whole.fresh = false;
  auto part = whole.grad.narrow(dim, first, count);
  part.add_(contribution.view(part.sizes()));
}

at::Tensor joined_value(const Parameters& parameters) {
  if (parameters.size() == 1) return parameters.front()->value;
  std::vector<at::Tensor> values;
  for (const auto* parameter : parameters) values.push_back(parameter->value);
  return joined(values);
}

std::vector<at::Tensor> joined_groups(const std::vector<at::Tensor>& parts, std::int64_t groups) {
  const auto places = parts.size() / static_cast<std::size_t>(groups);
  const auto& first = parts.front();
  const auto lies_with_first = [&](const at::Tensor& part) {
    return part.defined() && part.is_contiguous() && part.storage().is_alias_of(first.storage());
  };
  if (!first.defined() || !std::all_of(parts.begin(), parts.end(), lies_with_first)) return {};
  const auto distance = groups > 1 ? parts[places].storage_offset() - first.storage_offset() : first.numel();
  for (std::size_t i = places; i < parts.size(); ++i)
    if (parts[i].sizes() != parts[i - places].sizes() ||
        parts[i].storage_offset() != parts[i - places].storage_offset() + distance)
      return {};
  std::vector<at::Tensor> out;
  for (std::size_t begin = 0, end = 0; begin < places; begin = end) {
    const auto offset = parts[begin].storage_offset(), columns = parts[begin].size(1);
    std::int64_t rows = 0;
    for (; end < places && parts[end].size(1) == columns && parts[end].storage_offset() == offset + rows * columns;
         ++end)
      rows += parts[end].size(0);
    out.push_back(first.as_strided({groups, rows, columns}, {distance, columns, 1}, offset));
  }
  return out;
}

void accumulate_product(const Parameters& parameters, const at::Tensor& whole_gradient, const at::Tensor& whole_x) {
  NoGraph guard;
  if (any_float8(parameters) && whole_x.size(0) > 0) {  // one GEMM each, because each gradient has its own scale
    std::optional<Float8Matrix> eight;                  // x, cast once for all
    std::int64_t row = 0;
    for (auto* parameter : parameters) {
      const auto gradient = whole_gradient.narrow(1, row, parameter->shape[0]);
      row += parameter->shape[0];
      if (!parameter->trained()) continue;
      if (!parameter->float8) {
        accumulate_product({parameter}, gradient, whole_x);
        continue;
      }
      if (!eight) eight = float8_gradient_input(whole_x, *parameter->float8);
      const auto type = parameter->fused_accumulation ? parameter->grad.scalar_type() : whole_x.scalar_type();
      accumulate(*parameter, float8_weight_gradient(gradient, *eight, type, *parameter->float8));
    }
    return;
  }
  const auto type = parameters.front()->matmul_type.value_or(whole_x.scalar_type());
  const auto gradient = whole_gradient.to(type), x = whole_x.to(type);
  bool all_trained = true, same_age = true;
  std::vector<at::Tensor> grads;
  for (const auto* parameter : parameters) {
    all_trained = all_trained && parameter->trained();
    same_age = same_age && parameter->fresh == parameters.front()->fresh;
    grads.push_back(parameter->grad);
  }
  const auto whole = all_trained && same_age ? joined(grads) : at::Tensor();
  const bool fused = parameters.front()->fused_accumulation;
  if (whole.defined()) {
    add_product(whole, parameters.front()->fresh, gradient, x, fused);
  } else {
    std::int64_t row = 0;
    for (auto* parameter : parameters) {
      const auto rows = parameter->shape[0];
      if (parameter->trained()) add_product(parameter->grad, parameter->fresh, gradient.narrow(1, row, rows), x, fused);
      row += rows;
    }
  }
  for (auto* parameter : parameters) parameter->fresh = false;
}

namespace {

/// Zeroes the gradient if nothing was added to it yet.
void make_defined(Parameter& parameter) {
  if (parameter.fresh) parameter.grad.zero_();
  parameter.fresh = false;
}

}  // namespace

void accumulate_stacked(Parameter& parameter, const at::Tensor& x, const at::Tensor& gradient,
                        const std::vector<std::int64_t>& rows) {
  if (!parameter.trained()) return;
  NoGraph guard;
  make_defined(parameter);
  const auto type = parameter.matmul_type.value_or(x.scalar_type());
  std::int64_t first = 0;
  for (std::size_t g = 0; g < rows.size(); first += rows[g++])
    if (rows[g] > 0)
      add_product(parameter.grad.select(0, static_cast<std::int64_t>(g)), false, x.narrow(0, first, rows[g]).to(type),
                  gradient.narrow(0, first, rows[g]).to(type), parameter.fused_accumulation);
}

void accumulate_group_sums(Parameter& parameter, const at::Tensor& gradient, const std::vector<std::int64_t>& rows) {
  if (!parameter.trained()) return;
  NoGraph guard;
  make_defined(parameter);
  std::int64_t first = 0;
  for (std::size_t g = 0; g < rows.size(); first += rows[g++])
    if (rows[g] > 0)
      parameter.grad.select(0, static_cast<std::int64_t>(g)).add_(gradient.narrow(0, first, rows[g]).sum(0));
}

namespace {

/// grad += product (= if fresh) for `grad` [groups, rows, columns], `first` being the first of its groups. A product of
/// a group without rows is undefined, and is not read.
void add_groups(const at::Tensor& grad, const at::Tensor& product, const at::Tensor& ends, std::int64_t first,
                bool fresh) {
  const auto* device = device_kernels(grad);
  AUTOMODEL_CHECK(device != nullptr, "where there is a grouped GEMM there are kernels");
  device->add_groups(element_of(grad),
                     {.product = product.const_data_ptr(),
                      .gradient = grad.mutable_data_ptr(),
                      .ends = ends.const_data_ptr<std::int32_t>(),
                      .first_group = first,
                      .groups = grad.size(0),
                      .count = grad.size(1) * grad.size(2),
                      .product_distance = product.stride(0),
                      .gradient_distance = grad.stride(0),
                      .fresh = fresh},
                     device->stream());
}

bool any_trained(const Parameters& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [](const Parameter* each) { return each->trained(); });
}

}  // namespace

void accumulate_groups(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x,
                       const at::Tensor& ends) {
  if (!any_trained(parameters) || x.size(0) == 0) return;
  NoGraph guard;
  const auto groups = ends.size(0);
  const auto product = grouped_product(gradient)(gradient.t(), x, ends);
  auto& first = *parameters.front();
  if (first.shape.size() == 3) {
    add_groups(first.grad, product, ends, 0, first.fresh);
    first.fresh = false;
    return;
  }
  std::vector<at::Tensor> grads;
  bool same_age = true;
  for (const auto* parameter : parameters) {
    grads.push_back(parameter->grad);
    same_age = same_age && parameter->fresh == first.fresh;
  }
  std::int64_t row = 0;
  if (const auto stacks = joined_groups(grads, groups); same_age && !stacks.empty()) {
    for (const auto& stack : stacks) {
      add_groups(stack, product.narrow(1, row, stack.size(1)), ends, 0, first.fresh);
      row += stack.size(1);
    }
    for (auto* parameter : parameters) parameter->fresh = false;
    return;
  }
  const auto places = parameters.size() / static_cast<std::size_t>(groups);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (i % places == 0) row = 0;
    auto& parameter = *parameters[i];
    const auto rows = parameter.shape[0], group = static_cast<std::int64_t>(i / places);
    if (parameter.trained()) {
      add_groups(parameter.grad.unsqueeze(0), product.narrow(0, group, 1).narrow(1, row, rows), ends, group,
                 parameter.fresh);
      parameter.fresh = false;
    }
    row += rows;
  }
}

void accumulate_group_sums(Parameter& parameter, const at::Tensor& gradient, const at::Tensor& ends) {
  if (!parameter.trained() || gradient.size(0) == 0) return;
  NoGraph guard;
  constexpr std::int64_t kPack = 8;  // the narrowest grouped GEMM; all of its output rows are equal
  const auto ones = at::ones({gradient.size(0), kPack}, gradient.options());
  const auto product = grouped_product(ones)(ones.t(), gradient, ends);
  add_groups(parameter.grad.unsqueeze(1), product.narrow(1, 0, 1), ends, 0, parameter.fresh);
  parameter.fresh = false;
}

void WeightGradients::drain() {
  taken_ = 0;
  while (!waiting_.empty()) {
    const Product product = std::move(waiting_.front());
    waiting_.pop_front();
    if (product.ends.defined())
      accumulate_groups(product.parameters, product.gradient, product.x, product.ends);
    else if (product.rows.empty())
      accumulate_product(product.parameters, product.gradient, product.x);
    else
      accumulate_stacked(*product.parameters.front(), product.x, product.gradient, product.rows);
  }
}

std::int64_t WeightGradients::bytes() const {
  std::int64_t total = 0;
  for (const auto& product : waiting_)
    total += static_cast<std::int64_t>(product.gradient.nbytes() + product.x.nbytes());
  return total;
}

WeightGradients* WeightGradients::current() {
  return current_queue;
}
WeightGradients::Scope::Scope(WeightGradients* queue) : before_(current_queue) {
  current_queue = queue;
}
WeightGradients::Scope::~Scope() {
  current_queue = before_;
}

void weight_gradient(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x) {
  if (!any_trained(parameters)) return;
  auto* own = parameters.size() == 1 ? parameters.front()->waiting : nullptr;
  if (own != nullptr && own->full()) own = nullptr;
  if (auto* queue = own != nullptr ? own : WeightGradients::current())
    queue->push({parameters, gradient, x});
  else
    accumulate_product(parameters, gradient, x);
}

void stacked_weight_gradient(Parameter& parameter, const at::Tensor& x, const at::Tensor& gradient,
                             const std::vector<std::int64_t>& rows) {
  if (!parameter.trained()) return;
  if (auto* queue = WeightGradients::current())
    queue->push({{&parameter}, gradient, x, rows});
  else
    accumulate_stacked(parameter, x, gradient, rows);
}

void group_weight_gradients(const Parameters& parameters, const at::Tensor& gradient, const at::Tensor& x,
                            const at::Tensor& ends) {
  if (!any_trained(parameters)) return;
  if (auto* queue = WeightGradients::current())
    queue->push({.parameters = parameters, .gradient = gradient, .x = x, .ends = ends});
  else
    accumulate_groups(parameters, gradient, x, ends);
}

at::Tensor use(Parameter& parameter, const at::Tensor& like) {
  auto value = parameter.dense().detach();
  // Sharded gradients have no memory during the forward pass: whether there is one to add to is known only in the
  // backward pass.
  if (records({like})) record({value}, {like}, std::make_unique<UseBackward>(parameter));
  return value;
}

}  // namespace automodel::ops
