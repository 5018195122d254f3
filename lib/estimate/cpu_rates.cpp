#include "estimate/cpu_rates.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

namespace automodel::estimate {
namespace {

struct CpuInfo {
  std::string name = "unknown CPU", vendor = {}, flags = {};
  int family = 0;
  double clock = 2.5e9;
  bool has(std::string_view flag) const {  // flags are words between spaces
    return flags.find(' ' + std::string(flag) + ' ') != std::string::npos;
  }
};

/// Ends at the first processor's flags, which come last.
CpuInfo read(std::istream& info) {
  CpuInfo out;
  for (std::string line; std::getline(info, line) && out.flags.empty();) {
    const auto value = [&] { return line.substr(std::min(line.find(':') + 2, line.size())); };
    if (line.starts_with("vendor_id")) out.vendor = value();
    if (line.starts_with("cpu family")) out.family = std::atoi(value().c_str());
    if (line.starts_with("model name")) out.name = value();
    if (line.starts_with("cpu MHz")) out.clock = std::max(out.clock, std::atof(value().c_str()) * 1e6);
    if (line.starts_with("flags")) out.flags = ' ' + value() + ' ';
  }
  return out;
}

/// Matmuls as this program runs them (bench/gemm_bench), 128 to 1,024 tokens. A processor belongs to the first row of
/// its vendor and family whose instructions it has.
struct Measured {
  std::string_view vendor;
  int family;
  std::string_view flag;
  double float32, memory, gain_avx512;
};
constexpr std::array kMeasured = {
    Measured{"AuthenticAMD", 26, "avx512f", 255e9, 20e9, 1.9},  // EPYC, fifth generation: 512-bit units
    Measured{"AuthenticAMD", 25, "avx512f", 100e9, 20e9, 1.9},  // EPYC 9004: AVX-512 in 256-bit halves
    Measured{"GenuineIntel", 6, "amx_bf16", 160e9, 20e9, 1.5},
    // Without AMX, the bfloat16 instructions have 0.6 times the rate of float32's.
    Measured{"GenuineIntel", 6, "avx512_bf16", 140e9, 20e9, 0.6},
};

}  // namespace

double CpuRates::gain(BFloat16Unit unit) const {
  switch (unit) {
    case BFloat16Unit::kNone: return 1;
    case BFloat16Unit::kAvx512: return gain_avx512;
    case BFloat16Unit::kAmx: return gain_amx;
  }
  return 1;
}

CpuRates cpu_rates(std::istream& info) {
  const auto cpu = read(info);
  const auto* row = std::find_if(kMeasured.begin(), kMeasured.end(), [&](const Measured& each) {
    return each.vendor == cpu.vendor && each.family == cpu.family && cpu.has(each.flag);
  });
  if (row != kMeasured.end())
    return {.name = cpu.name, .float32 = row->float32, .memory = row->memory, .gain_avx512 = row->gain_avx512};
  // Two units of fused multiply-adds. The nominal clock stands for matmuls at a higher one.
  const double lanes = cpu.has("avx512f") ? 16 : cpu.has("avx2") ? 8 : 4;
  return {.name = cpu.name, .float32 = cpu.clock * lanes * 4, .memory = 12e9};
}

CpuRates cpu_rates() {
  std::ifstream info("/proc/cpuinfo");
  return cpu_rates(info);
}

}  // namespace automodel::estimate
