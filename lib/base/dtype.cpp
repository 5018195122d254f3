#include "base/dtype.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace automodel {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int size;
};
constexpr std::array kRows = {
    Row{DType::kFloat32, "float32", 4}, Row{DType::kFloat64, "float64", 8}, Row{DType::kBFloat16, "bfloat16", 2},
    Row{DType::kFloat16, "float16", 2}, Row{DType::kInt64, "int64", 8},     Row{DType::kInt32, "int32", 4},
    Row{DType::kUInt8, "uint8", 1},     Row{DType::kBool, "bool", 1},
};
constexpr std::array<std::pair<std::string_view, DType>, 10> kAliases = {{
    {"fp32", DType::kFloat32},
    {"float", DType::kFloat32},
    {"f32", DType::kFloat32},
    {"fp64", DType::kFloat64},
    {"double", DType::kFloat64},
    {"bf16", DType::kBFloat16},
    {"fp16", DType::kFloat16},
    {"half", DType::kFloat16},
    {"long", DType::kInt64},
    {"int", DType::kInt32},
}};

const Row& row(DType dtype) {
  for (const auto& candidate : kRows)
    if (candidate.dtype == dtype) return candidate;
  throw InternalError("unknown dtype");
}

}  // namespace

int size_of(DType dtype) {
  return row(dtype).size;
}
std::string_view name_of(DType dtype) {
  return row(dtype).name;
}

std::optional<DType> parse_dtype(std::string_view text) {
  if (text.starts_with("torch.")) text.remove_prefix(6);
  for (const auto& candidate : kRows)
    if (candidate.name == text) return candidate.dtype;
  for (const auto& [alias, dtype] : kAliases)
    if (alias == text) return dtype;
  return std::nullopt;
}

}  // namespace automodel
