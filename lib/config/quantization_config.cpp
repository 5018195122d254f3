#include "config/quantization_config.h"

namespace automodel::config {

Diagnostics check(const QuantizationConfig& config) {
  Diagnostics problems;
  if (config.load_in_4bit() && config.load_in_8bit())
    problems.add("bad-value", "load_in_8bit")
        .says("weights are kept in 4 or in 8 bits, not both")
        .hint("remove one of the two");
  if (config.load_in_4bit() && config.quant_type() == FourBitType::kFp4)
    problems.add("unsupported-option", "bnb_4bit_quant_type")
        .says("4-bit weights are nf4; fp4 is not supported")
        .hint("set bnb_4bit_quant_type: nf4, which is more accurate");
  return problems;
}

}  // namespace automodel::config
