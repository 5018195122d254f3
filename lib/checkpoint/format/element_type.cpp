#include "checkpoint/format/element_type.h"

#include <array>

#include "base/error.h"

namespace automodel::checkpoint {
namespace {

struct Row {
  ElementType type;
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};
constexpr std::array kRows = {
    Row{ElementType::kF64, "F64", 64, DType::kFloat64},
    Row{ElementType::kF32, "F32", 32, DType::kFloat32},
    Row{ElementType::kBF16, "BF16", 16, DType::kBFloat16},
    Row{ElementType::kF16, "F16", 16, DType::kFloat16},
    Row{ElementType::kI64, "I64", 64, DType::kInt64},
    Row{ElementType::kI32, "I32", 32, DType::kInt32},
    Row{ElementType::kI16, "I16", 16, {}},
    Row{ElementType::kI8, "I8", 8, {}},
    Row{ElementType::kU64, "U64", 64, {}},
    Row{ElementType::kU32, "U32", 32, {}},
    Row{ElementType::kU16, "U16", 16, {}},
    Row{ElementType::kU8, "U8", 8, DType::kUInt8},
    Row{ElementType::kBool, "BOOL", 8, DType::kBool},
    Row{ElementType::kC64, "C64", 64, {}},
    Row{ElementType::kF8E4M3, "F8_E4M3", 8, {}},
    Row{ElementType::kF8E5M2, "F8_E5M2", 8, {}},
    Row{ElementType::kF8E8M0, "F8_E8M0", 8, {}},
    Row{ElementType::kF6E3M2, "F6_E3M2", 6, {}},
    Row{ElementType::kF6E2M3, "F6_E2M3", 6, {}},
    Row{ElementType::kF4, "F4", 4, {}},
};

const Row& row(ElementType type) {
  for (const auto& each : kRows)
    if (each.type == type) return each;
  throw InternalError("unknown element type");
}

}  // namespace

int bits_of(ElementType type) {
  return row(type).bits;
}
std::string_view name_of(ElementType type) {
  return row(type).name;
}

std::optional<ElementType> parse_element_type(std::string_view name) {
  for (const auto& each : kRows)
    if (each.name == name) return each.type;
  return std::nullopt;
}

bool is_weight_type(ElementType type) {
  return type == ElementType::kF64 || type == ElementType::kF32 || type == ElementType::kBF16 ||
         type == ElementType::kF16;
}

std::optional<DType> dtype_of(ElementType type) {
  return row(type).dtype;
}

std::optional<ElementType> element_type_of(DType dtype) {
  for (const auto& each : kRows)
    if (each.dtype == dtype) return each.type;
  return std::nullopt;
}

}  // namespace automodel::checkpoint
