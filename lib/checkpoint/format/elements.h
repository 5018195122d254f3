// Conversion between element types, without LibTorch.
#pragma once

#include <cstdint>

#include "checkpoint/format/element_type.h"

namespace automodel::checkpoint {

/// Converts `count` elements, rounding to nearest even as LibTorch does; NaN stays NaN. Both types must be weight types
/// (is_weight_type) or, one of them, I64 or I32: numbers of experts, of at least 0. As floats those above 256, the last
/// that bfloat16 holds exactly, are 256 minus the number, which serves up to 512. `from` and `to` must not overlap and
/// need no alignment.
void convert_elements(ElementType from_type, const char* from, ElementType to_type, char* to, std::int64_t count);

/// Conversion of single values.
float to_float_from_bf16(std::uint16_t bits);
float to_float_from_f16(std::uint16_t bits);
std::uint16_t to_bf16(float value);
std::uint16_t to_f16(float value);

}  // namespace automodel::checkpoint
