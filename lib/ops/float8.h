// Matmuls of 8-bit operands: scaled to the range of the type, rounded to it, multiplied, scaled back. The recipes are
// those of torchao's float8 training with dynamic scaling.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/kernels/settings.h"
#include "plan/values/float8.h"

namespace automodel::ops {

/// A matrix [rows, columns] in an 8-bit type, standing for data / scale. scale is float32 of shape [1], [rows, 1] or
/// [1, columns]: the type's largest number / the largest magnitude, so that the latter maps to the former.
struct Float8Matrix {
  at::Tensor data, scale;
};
/// `type` is kFloat8_e4m3fn or kFloat8_e5m2. With `power_of_two` the scale is rounded down to a power of two. With
/// `by_columns`, data is stored column by column where that costs nothing: by the GPU's kernel.
Float8Matrix to_float8(const at::Tensor& x, at::ScalarType type, ScaleOf scale, bool power_of_two,
                       bool by_columns = false);

// The GEMMs of a layer with one weight [out, in]: on a GPU with 8-bit GEMMs by one of those, elsewhere (or with
// `emulate`) by a float32 GEMM of the same 8-bit values, whose individual products are exact.

/// x [n, in] times the weight: [n, out] in x's type.
at::Tensor float8_result(const at::Tensor& x, const at::Tensor& weight, const plan::Float8Plan& rule);
/// Gradient of x [n, in] from that of the result [n, out], in its type.
at::Tensor float8_input_gradient(const at::Tensor& gradient, const at::Tensor& weight, const plan::Float8Plan& rule);
/// True if the recipe computes weight gradients by 8-bit GEMMs too.
bool float8_weight_products(const plan::Float8Plan& rule);
/// The weight's gradient [out, in], of type `out`.
at::Tensor float8_weight_gradient(const at::Tensor& gradient, const at::Tensor& x, at::ScalarType out,
                                  const plan::Float8Plan& rule);

}  // namespace automodel::ops
