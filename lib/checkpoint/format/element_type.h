// The element types of the safetensors format.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace automodel::checkpoint {

enum class ElementType : std::uint8_t {
  kF64,
  kF32,
  kBF16,
  kF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kC64,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF6E3M2,
  kF6E2M3,
  kF4,
};

/// Bits per element; 4- and 6-bit types are packed.
int bits_of(ElementType type);
/// "F32", "BF16", "F8_E4M3", ... as spelled in headers.
std::string_view name_of(ElementType type);
/// Empty for a name that is not in the format.
std::optional<ElementType> parse_element_type(std::string_view name);
/// F64, F32, BF16, F16: the types that trainable weights can be stored in.
bool is_weight_type(ElementType type);
/// Conversion to and from the planning core's type; empty if there is no equivalent.
std::optional<DType> dtype_of(ElementType type);
std::optional<ElementType> element_type_of(DType dtype);

}  // namespace automodel::checkpoint
