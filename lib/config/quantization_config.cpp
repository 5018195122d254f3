#include "config/quantization_config.h"

namespace automodel::config {

Diagnostics check(const QuantizationConfig& config) {
  Diagnostics problems;
  if (config.load_in_4bit() && config.load_in_8bit())
    problems.push_back(
        {"bad-value", "weights are kept in 4 or in 8 bits, not both", "remove one of the two", {}, "load_in_8bit"});
  if (config.load_in_4bit() && config.quant_type() == FourBitType::kFp4)
    problems.push_back({"unsupported-option",
                        "4-bit weights are nf4; fp4 is not supported",
                        "set bnb_4bit_quant_type: nf4, which is more accurate",
                        {},
                        "bnb_4bit_quant_type"});
  return problems;
}

}  // namespace automodel::config
