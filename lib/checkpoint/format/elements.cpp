#include "checkpoint/format/elements.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/expert_number.h"

namespace automodel::checkpoint {
namespace {

constexpr std::int64_t kConvertedAtOnce = 4096;

/// Widens elements to the type that conversion goes through. With Wide = double, float64 values pass unrounded.
template <class Wide>
void widen(ElementType type, const char* from, Wide* to, std::int64_t count) {
  const auto each = [&](auto sample, auto&& convert) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(&sample, from + i * static_cast<std::int64_t>(sizeof(sample)), sizeof(sample));
      to[i] = static_cast<Wide>(convert(sample));
    }
  };
  if (type == ElementType::kF64) return each(double{}, [](double v) { return v; });
  if (type == ElementType::kF32) return each(float{}, [](float v) { return v; });
  if (type == ElementType::kBF16) return each(std::uint16_t{}, to_float_from_bf16);
  if (type == ElementType::kF16) return each(std::uint16_t{}, to_float_from_f16);
  if (type == ElementType::kI64) return each(std::int64_t{}, stored_expert);
  if (type == ElementType::kI32) return each(std::int32_t{}, stored_expert);
  throw InternalError("only floating-point elements are converted");
}

template <class Wide>
void narrow(const Wide* from, ElementType type, char* to, std::int64_t count) {
  const auto each = [&](auto&& convert) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = convert(from[i]);
      std::memcpy(to + i * static_cast<std::int64_t>(sizeof(value)), &value, sizeof(value));
    }
  };
  if (type == ElementType::kF64) return each([](Wide v) { return static_cast<double>(v); });
  if (type == ElementType::kF32) return each([](Wide v) { return static_cast<float>(v); });
  if (type == ElementType::kBF16) return each([](Wide v) { return to_bf16(static_cast<float>(v)); });
  if (type == ElementType::kF16) return each([](Wide v) { return to_f16(static_cast<float>(v)); });
  if (type == ElementType::kI64) return each([](Wide v) { return number_of_expert(static_cast<double>(v)); });
  if (type == ElementType::kI32)
    return each([](Wide v) { return static_cast<std::int32_t>(number_of_expert(static_cast<double>(v))); });
  throw InternalError("only floating-point elements are converted");
}

template <class Wide>
void convert_through(ElementType from_type, const char* from, ElementType to_type, char* to, std::int64_t count) {
  Wide buffer[kConvertedAtOnce];
  const auto from_size = bits_of(from_type) / 8, to_size = bits_of(to_type) / 8;
  for (std::int64_t first = 0; first < count; first += kConvertedAtOnce) {
    const auto some = std::min(kConvertedAtOnce, count - first);
    widen(from_type, from + first * from_size, buffer, some);
    narrow(buffer, to_type, to + first * to_size, some);
  }
}

}  // namespace

float to_float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return 0x7FC0;  // NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

float to_float_from_f16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float value = static_cast<float>(mantissa) * 0x1p-24F;  // zero or subnormal: a multiple of 2^-24
  return sign != 0 ? -value : value;
}

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);   // NaN
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // rounds to infinity
  if (magnitude < 0x38800000U) {                                                    // below 2^-14: subnormal
    // Adding 0.5 leaves the number of 2^-24 units in the low mantissa bits, correctly rounded by the addition.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

void convert_elements(ElementType from_type, const char* from, ElementType to_type, char* to, std::int64_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count * bits_of(from_type) / 8));
  } else if (from_type == ElementType::kF64) {
    convert_through<double>(from_type, from, to_type, to, count);
  } else {
    convert_through<float>(from_type, from, to_type, to, count);
  }
}

}  // namespace automodel::checkpoint
