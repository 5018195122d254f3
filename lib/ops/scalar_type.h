// Conversion of the planning core's element types to ATen's.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/dtype.h"
#include "base/error.h"

namespace automodel {

inline at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return at::kFloat;
    case DType::kFloat64: return at::kDouble;
    case DType::kBFloat16: return at::kBFloat16;
    case DType::kFloat16: return at::kHalf;
    case DType::kInt64: return at::kLong;
    case DType::kInt32: return at::kInt;
    case DType::kUInt8: return at::kByte;
    case DType::kBool: return at::kBool;
  }
  throw InternalError("unknown dtype");
}

}  // namespace automodel
