#include "ops/activation.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "base/error.h"
#include "ops/element_type.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

at::Tensor apply(const at::Tensor& x, Gate gate) {
  switch (gate) {
    case Gate::kSilu: return at::silu(x);
    case Gate::kGeluTanh: return at::gelu(x, "tanh");
    case Gate::kGelu: return at::gelu(x, "none");
  }
  throw InternalError("unknown activation");
}

at::Tensor apply_backward(const at::Tensor& gradient, const at::Tensor& x, Gate gate) {
  switch (gate) {
    case Gate::kSilu: return at::silu_backward(gradient, x);
    case Gate::kGeluTanh: return at::gelu_backward(gradient, x, "tanh");
    case Gate::kGelu: return at::gelu_backward(gradient, x, "none");
  }
  throw InternalError("unknown activation");
}

template <class T>
const GateKernels<T>& gate_kernels() {
  return pick<T>(kernels().gate_float, kernels().gate_double, kernels().gate_bfloat16);
}

class GatedBackward : public Backward {
 public:
  GatedBackward(at::Tensor x, Gate gate) : x_(std::move(x)), gate_(gate) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const auto columns = x_.size(-1) / 2;
    const auto gradient = gradients[0].to(x_.scalar_type()).contiguous();
    if (!has_kernel(x_)) {
      const auto g = x_.narrow(-1, 0, columns), up = x_.narrow(-1, columns, columns);
      return {at::cat({apply_backward(gradient * up, g, gate_), gradient * apply(g, gate_)}, -1)};
    }
    auto dx = at::empty_like(x_, at::MemoryFormat::Contiguous);
    for_type(x_.scalar_type(), [&](auto* tag) {
      using T = std::remove_pointer_t<decltype(tag)>;
      const T* g = gradient.const_data_ptr<T>();
      const T* in = x_.const_data_ptr<T>();
      T* out = dx.mutable_data_ptr<T>();
      at::parallel_for(0, x_.numel() / (2 * columns), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        gate_kernels<T>().backward(g + begin * columns, in + begin * 2 * columns, out + begin * 2 * columns,
                                   end - begin, columns, gate_);
      });
    });
    return {dx};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "gated"; }

 private:
  at::Tensor x_;
  Gate gate_;
};

class ActivateBackward : public Backward {
 public:
  ActivateBackward(at::Tensor x, Gate gate) : x_(std::move(x)), gate_(gate) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    return {apply_backward(gradients[0], x_, gate_)};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "activate"; }

 private:
  at::Tensor x_;
  Gate gate_;
};

}  // namespace

at::Tensor gated(const at::Tensor& x, Gate gate) {
  at::Tensor input, out;
  {
    NoGraph guard;
    input = x.detach().contiguous();
    const auto columns = input.size(-1) / 2;
    if (has_kernel(input)) {
      auto shape = input.sizes().vec();
      shape.back() = columns;
      out = at::empty(shape, input.options());
      for_type(input.scalar_type(), [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        const T* in = input.const_data_ptr<T>();
        T* result = out.mutable_data_ptr<T>();
        at::parallel_for(0, out.numel() / std::max<std::int64_t>(columns, 1), kRowsPerTask,
                         [&](std::int64_t begin, std::int64_t end) {
                           gate_kernels<T>().forward(in + begin * 2 * columns, result + begin * columns, end - begin,
                                                     columns, gate);
                         });
      });
    } else {
      out = apply(input.narrow(-1, 0, columns), gate) * input.narrow(-1, columns, columns);
    }
  }
  if (records({x})) record({out}, {x}, std::make_unique<GatedBackward>(input, gate));
  return out;
}

at::Tensor activate(const at::Tensor& x, Gate gate) {
  at::Tensor input, out;
  {
    NoGraph guard;
    input = x.detach();
    out = apply(input, gate);
  }
  if (records({x})) record({out}, {x}, std::make_unique<ActivateBackward>(input, gate));
  return out;
}

}  // namespace automodel::ops
