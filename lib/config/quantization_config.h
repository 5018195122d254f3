// `quantization:` frozen base weights in 4 or 8 bits under adapters (QLoRA), with the keys of transformers'
// BitsAndBytesConfig.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "base/diagnostic.h"
#include "base/dtype.h"
#include "config/types.h"

namespace automodel::config {

enum class FourBitType { kNf4, kFp4 };
template <>
struct EnumNames<FourBitType> {
  static constexpr std::array names = {EnumName<FourBitType>{"nf4", FourBitType::kNf4},
                                       EnumName<FourBitType>{"fp4", FourBitType::kFp4}};
};

struct QuantizationConfig {
  using IsSection = void;
  Field<bool> load_in_4bit{"load_in_4bit", false,
                           "Keep weights of linear modules, except experts, routers and the head, in 4 bits: blocks of "
                           "64 with one scale each, as bitsandbytes does."};
  Field<bool> load_in_8bit{"load_in_8bit", false,
                           "The same in 8 bits with one scale per row; matmuls run in the model's dtype."};
  Field<FourBitType> quant_type{"bnb_4bit_quant_type", FourBitType::kNf4, "Which 16 values the 4-bit codes represent."};
  Field<bool> double_quant{"bnb_4bit_use_double_quant", true,
                           "Keep the scales of 4-bit blocks in 8 bits: 4.127 bits per weight instead of 4.5."};
  Field<DType> compute_dtype{"bnb_4bit_compute_dtype", DType::kBFloat16, "Dtype of matmuls with 4-bit weights."};
  Field<std::optional<DType>> quant_storage{"bnb_4bit_quant_storage", std::nullopt, "Declared dtype of packed weights.",
                                            Ignored{"they are stored as bytes on every mesh"}};
};

/// Checks rules across keys of this section; reported keys are relative to it.
Diagnostics check(const QuantizationConfig& config);

}  // namespace automodel::config
