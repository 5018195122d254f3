// Element types, under PyTorch's names. Planning needs only sizes and names; the runtime maps them to ATen's types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace automodel {

enum class DType : std::uint8_t { kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kUInt8, kBool };

/// Bytes per element.
int size_of(DType dtype);
/// "float32", "bfloat16", ...
std::string_view name_of(DType dtype);
/// Parses "float32", "torch.float32", "fp32", "float", "bf16", "half", ... Empty for an unknown name.
std::optional<DType> parse_dtype(std::string_view text);

}  // namespace automodel
