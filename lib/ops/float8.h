// Matmuls of 8-bit operands: scaled to the range of the type, rounded to it, multiplied, scaled back. The recipes are
// those of torchao's float8 training with dynamic scaling.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/kernels/settings.h"
#include "plan/values/float8.h"

namespace automodel::ops {

/// A matrix [rows, columns] in an 8-bit type, standing for data / scale. scale is float32 of shape [1], [rows, 1] or
/// [1, columns]: the type's largest number / the largest magnitude, so that the latter maps to the former. inverse is
/// 1 / scale, by which matmuls multiply.
struct Float8Matrix {
  at::Tensor data, scale, inverse;
};
/// `type` is kFloat8_e4m3fn or kFloat8_e5m2; rows of x may be further apart than its columns are many. With
/// `power_of_two` the scale is rounded down to a power of two. With `by_columns`, data is stored column by column where
/// that costs nothing: by the GPU's kernel.
Float8Matrix to_float8(const at::Tensor& x, at::ScalarType type, ScaleOf scale, bool power_of_two,
                       bool by_columns = false);

/// The 8-bit forms of a weight [out, in]; undefined until they are first needed.
struct Float8Weight {
  Float8Matrix for_result, for_gradient;
};

// The GEMMs of a layer with one weight [out, in]: on a GPU with 8-bit GEMMs by one of those, elsewhere (or with
// `emulate`) by a float32 GEMM of the same 8-bit values, whose individual products are exact. The operand that several
// weights share, as q, k and v share their input, is cast once for all of them. `forms`: where the weight's are kept;
// null: nowhere.

/// x [n, in] as an operand of results.
Float8Matrix float8_input(const at::Tensor& x, const plan::Float8Plan& rule);
/// out [n, out] = x times the weight.
void float8_result(at::Tensor out, const Float8Matrix& x, const at::Tensor& weight, Float8Weight* forms,
                   const plan::Float8Plan& rule);
/// Gradient of x [n, in] from that of the result [n, out], in its type.
at::Tensor float8_input_gradient(const at::Tensor& gradient, const at::Tensor& weight, Float8Weight* forms,
                                 const plan::Float8Plan& rule);
/// x [n, in] as an operand of weight gradients.
Float8Matrix float8_gradient_input(const at::Tensor& x, const plan::Float8Plan& rule);
/// The weight's gradient [out, in], of type `out`.
at::Tensor float8_weight_gradient(const at::Tensor& gradient, const Float8Matrix& x, at::ScalarType out,
                                  const plan::Float8Plan& rule);

}  // namespace automodel::ops
