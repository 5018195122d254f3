// What one core of a processor reaches, for plans on machines that were not calibrated.
#pragma once

#include <istream>
#include <string>

#include "base/processor.h"

namespace automodel::estimate {

struct CpuRates {
  std::string name = "unknown CPU";
  double float32 = 0;  ///< FLOP/s of float32 matmuls
  double memory = 0;   ///< bytes per second
  /// Step time in float32 relative to bfloat16, for layers, by the unit that multiplies bfloat16.
  double gain_dot = 1.5, gain_amx = 2.5;
  double gain(BFloat16Unit unit) const;
};

/// From the text of /proc/cpuinfo: measured rates of known processors (docs/performance.md), else clock and vector
/// width of the first one.
CpuRates cpu_rates(std::istream& info);
/// Of this machine.
CpuRates cpu_rates();

}  // namespace automodel::estimate
