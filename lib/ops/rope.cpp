#include "ops/rope.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>

#include "base/error.h"
#include "ops/element_type.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

template <class T>
const RopeKernels<T>& rope_kernels() {
  return pick<T>(kernels().rope_float, kernels().rope_double, kernels().rope_bfloat16);
}

class RopeBackward : public Backward {
 public:
  RopeBackward(at::Tensor cos, at::Tensor sin, at::Tensor positions, bool interleaved)
      : cos_(std::move(cos)), sin_(std::move(sin)), positions_(std::move(positions)), interleaved_(interleaved) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    auto dx = gradients[0].clone(at::MemoryFormat::Contiguous);
    rope_in_place(dx, cos_, sin_, positions_, -1, interleaved_);
    return {dx};
  }
  const char* name() const override { return "rope"; }

 private:
  at::Tensor cos_, sin_, positions_;
  bool interleaved_;
};

}  // namespace

void rope_in_place(at::Tensor x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions, double sign,
                   bool interleaved) {
  const auto width = x.size(-1), heads = x.size(-2);
  const auto rows = positions.numel();
  const auto* device = device_kernels(x);
  if (device != nullptr || has_kernel(x)) {
    const auto where = positions.contiguous();
    // Rows of heads may be strided (part of a joined projection), but evenly. The stride of a dimension of size 1 is
    // meaningless.
    const bool one_each = x.dim() >= 4 && x.size(-3) == 1;
    const auto row_stride = one_each ? x.stride(-4) : x.dim() >= 3 ? x.stride(-3) : heads * width;
    const auto head_stride = x.stride(-2);
    AUTOMODEL_CHECK(x.stride(-1) == 1 && rows * heads * width == x.numel(), "rope needs whole heads");
    AUTOMODEL_CHECK(x.dim() < 4 || x.size(-4) == 1 || x.stride(-4) == x.size(-3) * row_stride,
                    "rope needs evenly spaced rows");
    if (device != nullptr) {
      device->rope(element_of(x),
                   {.x = x.mutable_data_ptr(),
                    .row_stride = row_stride,
                    .head_stride = head_stride,
                    .rows = rows,
                    .heads = heads,
                    .width = width,
                    .cos = cos.const_data_ptr(),
                    .sin = sin.const_data_ptr(),
                    .position = where.const_data_ptr<std::int64_t>(),
                    .sign = sign,
                    .neighbours = interleaved},
                   device->stream());
      return;
    }
    for_type(x.scalar_type(), [&](auto* tag) {
      using T = std::remove_pointer_t<decltype(tag)>;
      using C = typename Compute<T>::type;
      T* data = x.mutable_data_ptr<T>();
      const C* cosine = cos.const_data_ptr<C>();
      const C* sine = sin.const_data_ptr<C>();
      const auto* position = where.const_data_ptr<std::int64_t>();
      at::parallel_for(0, rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        const auto rotate = interleaved ? rope_kernels<T>().rotate_neighbours : rope_kernels<T>().rotate;
        rotate(data + begin * row_stride, row_stride, head_stride, cosine, sine, position + begin, end - begin, heads,
               width, sign);
      });
    });
    return;
  }
  auto shape = positions.sizes().vec();
  shape.push_back(1);
  shape.push_back(width / 2);
  const auto type = compute_type(x.scalar_type());
  const auto flat = positions.reshape({-1});
  const auto cosine = at::index_select(cos, 0, flat).view(shape),
             sine = at::index_select(sin, 0, flat).view(shape) * sign;
  const auto pairs = interleaved ? x.unflatten(-1, {width / 2, 2}) : x.unflatten(-1, {2, width / 2});
  const auto of_pair = interleaved ? -1 : -2;
  const auto a = pairs.select(of_pair, 0).to(type), b = pairs.select(of_pair, 1).to(type);
  pairs.copy_(at::stack({a * cosine - b * sine, b * cosine + a * sine}, of_pair));
}

at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions,
                bool interleaved) {
  at::Tensor out;
  {
    NoGraph guard;
    out = x.detach().clone(at::MemoryFormat::Contiguous);
    rope_in_place(out, cos, sin, positions, 1, interleaved);
  }
  if (records({x})) record({out}, {x}, std::make_unique<RopeBackward>(cos, sin, positions, interleaved));
  return out;
}

}  // namespace automodel::ops
