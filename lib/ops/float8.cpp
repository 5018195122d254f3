#include "ops/float8.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include "base/error.h"
#include "ops/grouped_product.h"
#include "ops/kernels/device.h"

namespace automodel::ops {
namespace {

constexpr double kLeastMagnitude = 1e-12;  // lower bound, so that a matrix of zeros has a scale
constexpr std::int64_t kGrain = 16;        // GPU GEMMs need multiples of this many columns

double largest_of(at::ScalarType type) {
  return type == at::kFloat8_e5m2 ? 57344.0 : 448.0;
}

/// Type of output gradients: tensorwise scaling needs the wider range; row-wise scales do not.
at::ScalarType gradient_type(const plan::Float8Plan& rule) {
  return rule.recipe == plan::Float8Recipe::kTensorwise ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn;
}

bool by_rows(const plan::Float8Plan& rule) {
  return rule.recipe != plan::Float8Recipe::kTensorwise;
}

bool device_has_product(const Float8Matrix& a, const Float8Matrix& b) {
  if (!a.data.is_cuda() || b.data.size(1) % kGrain != 0) return false;  // e.g. a tensor-parallel rank's part
  const auto* kernels = loaded_kernels();
  return kernels != nullptr && kernels->has_float8 != nullptr && kernels->has_float8();
}

/// A scale as the device's GEMM expects it: one value for both operands, or (`rows`) one per row or column for both.
at::Tensor expanded(const at::Tensor& scale, std::vector<std::int64_t> shape, bool rows) {
  return rows && scale.numel() == 1 ? scale.expand(shape).contiguous() : scale;
}

/// Whether the device's GEMM may write `out`, whose rows may be apart: as those of q within q, k and v.
bool writes(const at::Tensor& out, bool by_rows) {
  if (out.is_contiguous()) return true;
  const auto* kernels = loaded_kernels();
  const bool apart = !by_rows || (kernels->writes_float8_rows_apart != nullptr && kernels->writes_float8_rows_apart());
  return apart && out.stride(1) == 1 && is_readable_in_place(out);  // aligned as cuBLASLt wants it, too
}

void on_device(at::Tensor out, const Float8Matrix& a, const Float8Matrix& b, bool fast) {
  auto left = a.data, right = b.data;
  if (const auto missing = (kGrain - left.size(1) % kGrain) % kGrain; missing > 0) {  // tokens; zeros add nothing
    left = at::constant_pad_nd(left.view(at::kByte), {0, missing}, 0).view(left.scalar_type());
    right = at::constant_pad_nd(right.view(at::kByte), {0, 0, 0, missing}, 0).view(right.scalar_type());
  }
  left = left.contiguous();            // row-major
  right = right.t().contiguous().t();  // column-major
  const bool rows = a.inverse.numel() > 1 || b.inverse.numel() > 1;
  const auto inverse_a = expanded(a.inverse, {left.size(0), 1}, rows);
  const auto inverse_b = expanded(b.inverse, {1, right.size(1)}, rows);
  // GEMMs with row-wise scales support only bfloat16 output.
  const auto type = rows ? at::kBFloat16 : out.scalar_type();
  if (type == out.scalar_type() && writes(out, rows))
    at::_scaled_mm_out(out, left, right, inverse_a, inverse_b, {}, {}, type, fast);
  else
    out.copy_(at::_scaled_mm(left, right, inverse_a, inverse_b, {}, {}, type, fast));
}

/// out [n, m] = a [n, k] b [k, m]. The one place that chooses the implementation.
void product_into(at::Tensor out, const Float8Matrix& a, const Float8Matrix& b, const plan::Float8Plan& rule,
                  bool fast) {
  if (!rule.emulate && device_has_product(a, b)) return on_device(out, a, b, fast);
  out.copy_(at::mm(a.data.to(at::kFloat), b.data.to(at::kFloat)).mul_(a.inverse).mul_(b.inverse));
}

at::Tensor product(const Float8Matrix& a, const Float8Matrix& b, at::ScalarType type, const plan::Float8Plan& rule,
                   bool fast) {
  auto out = at::empty({a.data.size(0), b.data.size(1)}, a.data.options().dtype(type));
  product_into(out, a, b, rule, fast);
  return out;
}

Float8Matrix transposed(const Float8Matrix& x) {
  const auto turned = [](const at::Tensor& scale) { return scale.dim() == 2 ? scale.t() : scale; };
  return {x.data.t(), turned(x.scale), turned(x.inverse)};
}

/// The weight's form `which`: made if it is not kept, and kept if there are `forms`.
template <class Make>
Float8Matrix form_of(Float8Weight* forms, Float8Matrix Float8Weight::*which, Make&& make) {
  if (forms == nullptr) return make();
  if (!(forms->*which).data.defined()) forms->*which = make();
  return forms->*which;
}

/// One scale, or one for each row or column where scales are by rows.
ScaleOf scale_by(ScaleOf which, const plan::Float8Plan& rule) {
  return by_rows(rule) ? which : ScaleOf::kMatrix;
}

}  // namespace

Float8Matrix to_float8(const at::Tensor& x, at::ScalarType type, ScaleOf scale, bool power_of_two, bool by_columns) {
  AUTOMODEL_CHECK(x.dim() == 2, "a float8 product takes matrices");
  const double largest = largest_of(type);
  const auto floats = x.options().dtype(at::kFloat);
  if (x.numel() == 0) return {x.to(type), at::full({1}, 1.0, floats), at::full({1}, 1.0, floats)};
  if (const auto* device = device_kernels(x)) {
    const auto rows = x.size(0), columns = x.size(1);
    const auto input = x.stride(1) == 1 ? x : x.contiguous();
    const auto factor = at::empty(scale == ScaleOf::kMatrix ? std::vector<std::int64_t>{1}
                                  : scale == ScaleOf::kRow  ? std::vector<std::int64_t>{rows, 1}
                                                            : std::vector<std::int64_t>{1, columns},
                                  floats);
    const auto inverse = at::empty(factor.sizes(), floats);
    const auto partial = at::empty({device->float8_parts(scale) * (scale == ScaleOf::kColumn ? columns : 1)}, floats);
    const auto data = at::empty({by_columns ? columns : rows, by_columns ? rows : columns}, x.options().dtype(type));
    device->float8_cast(element_of(x),
                        {.x = input.const_data_ptr(),
                         .rows = rows,
                         .columns = columns,
                         .pitch = input.stride(0),
                         .scale = scale,
                         .wide_range = type == at::kFloat8_e5m2,
                         .power_of_two = power_of_two,
                         .transposed = by_columns,
                         .partial = partial.mutable_data_ptr<float>(),
                         .factors = factor.mutable_data_ptr<float>(),
                         .inverse = inverse.mutable_data_ptr<float>(),
                         .out = static_cast<std::uint8_t*>(data.mutable_data_ptr())},
                        device->stream());
    return {by_columns ? data.t() : data, factor, inverse};
  }
  const auto magnitude = x.abs();
  auto top = scale == ScaleOf::kMatrix ? magnitude.max().view({1})
             : scale == ScaleOf::kRow  ? magnitude.amax(1, true)
                                       : magnitude.amax(0, true);
  auto factor = (top.to(at::kDouble).clamp_min_(kLeastMagnitude)).reciprocal_().mul_(largest);
  if (power_of_two) factor = factor.log2_().floor_().exp2_();
  factor = factor.to(at::kFloat);
  // In float32 the largest magnitude may come out slightly above the range of the type.
  return {x.to(at::kFloat).mul(factor).clamp_(-largest, largest).to(type), factor, factor.reciprocal()};
}

Float8Matrix float8_input(const at::Tensor& x, const plan::Float8Plan& rule) {
  return to_float8(x, at::kFloat8_e4m3fn, scale_by(ScaleOf::kRow, rule), by_rows(rule));
}

void float8_result(at::Tensor out, const Float8Matrix& x, const at::Tensor& weight, Float8Weight* forms,
                   const plan::Float8Plan& rule) {
  const auto right = form_of(forms, &Float8Weight::for_result, [&] { return float8_input(weight, rule); });
  product_into(out, x, transposed(right), rule, true);
}

at::Tensor float8_input_gradient(const at::Tensor& gradient, const at::Tensor& weight, Float8Weight* forms,
                                 const plan::Float8Plan& rule) {
  const auto left = to_float8(gradient, gradient_type(rule), scale_by(ScaleOf::kRow, rule), by_rows(rule));
  const auto scale = rule.recipe == plan::Float8Recipe::kRowwise ? ScaleOf::kColumn : ScaleOf::kMatrix;
  const auto right = form_of(forms, &Float8Weight::for_gradient,
                             [&] { return to_float8(weight, at::kFloat8_e4m3fn, scale, by_rows(rule), true); });
  return product(left, right, gradient.scalar_type(), rule, by_rows(rule));
}

Float8Matrix float8_gradient_input(const at::Tensor& x, const plan::Float8Plan& rule) {
  return to_float8(x, at::kFloat8_e4m3fn, scale_by(ScaleOf::kColumn, rule), by_rows(rule), true);
}

at::Tensor float8_weight_gradient(const at::Tensor& gradient, const Float8Matrix& x, at::ScalarType out,
                                  const plan::Float8Plan& rule) {
  const auto left = to_float8(gradient, gradient_type(rule), scale_by(ScaleOf::kColumn, rule), by_rows(rule), true);
  return product(transposed(left), x, out, rule, by_rows(rule));
}

}  // namespace automodel::ops
