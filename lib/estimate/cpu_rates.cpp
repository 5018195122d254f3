#include "estimate/cpu_rates.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/processor.h"

namespace automodel::estimate {
namespace {

struct CpuInfo {
  std::string name = "unknown CPU", vendor = {}, flags = {}, implementer = {}, part = {};
  int family = 0, model = 0;
  double clock = 2.5e9;
  bool has(std::string_view flag) const {  // flags are words between spaces
    return flags.find(' ' + std::string(flag) + ' ') != std::string::npos;
  }
};

/// Of the first processor, whose lines end with an empty one.
CpuInfo read(std::istream& info) {
  CpuInfo out;
  for (std::string line; std::getline(info, line) && !line.empty();) {
    const auto value = [&] { return line.substr(std::min(line.find(':') + 2, line.size())); };
    if (line.starts_with("vendor_id")) out.vendor = value();
    if (line.starts_with("cpu family")) out.family = std::atoi(value().c_str());
    if (line.starts_with("model\t")) out.model = std::atoi(value().c_str());
    if (line.starts_with("model name")) out.name = value();
    if (line.starts_with("cpu MHz")) out.clock = std::max(out.clock, std::atof(value().c_str()) * 1e6);
    if (line.starts_with("flags")) out.flags = ' ' + value() + ' ';
    if (line.starts_with("CPU implementer")) out.implementer = value();
    if (line.starts_with("CPU part")) out.part = value();
  }
  return out;
}

/// Matmuls as this program runs them (bench/gemm_bench), 128 to 1,024 tokens. A processor belongs to the first row of
/// its vendor and family whose instructions it has.
struct Measured {
  std::string_view vendor;
  int family;
  std::string_view flag;
  double float32, memory, gain_dot;
};
constexpr std::array kMeasured = {
    Measured{"AuthenticAMD", 26, "avx512f", 255e9, 20e9, 1.9},  // EPYC, fifth generation: 512-bit units
    Measured{"AuthenticAMD", 25, "avx512f", 100e9, 20e9, 1.9},  // EPYC 9004: AVX-512 in 256-bit halves
    Measured{"GenuineIntel", 6, "amx_bf16", 160e9, 20e9, 1.5},
    // Without AMX, the bfloat16 instructions have 0.6 times the rate of float32's.
    Measured{"GenuineIntel", 6, "avx512_bf16", 140e9, 20e9, 0.6},
};

/// Arm's processors have a number for a name, and no clock: nominal ones of servers (AWS Graviton 2 to 4, NVIDIA Grace,
/// Ampere), and pipes of 4 fused multiply-adds a cycle. Not measured.
struct ArmCore {
  std::string_view implementer, part, name;
  double clock;
  int pipes;
};
constexpr std::array kArmCores = {
    ArmCore{"0x41", "0xd0c", "Arm Neoverse N1", 2.5e9, 2}, ArmCore{"0x41", "0xd40", "Arm Neoverse V1", 2.6e9, 4},
    ArmCore{"0x41", "0xd49", "Arm Neoverse N2", 2.7e9, 2}, ArmCore{"0x41", "0xd4f", "Arm Neoverse V2", 2.8e9, 4},
    ArmCore{"0x41", "0xd84", "Arm Neoverse V3", 2.8e9, 4}, ArmCore{"0x41", "0xd8e", "Arm Neoverse N3", 2.7e9, 2},
    ArmCore{"0xc0", "0xac3", "Ampere-1", 2.8e9, 2},        ArmCore{"0xc0", "0xac4", "Ampere-1A", 3.0e9, 2},
};

CpuRates arm_rates(const CpuInfo& cpu) {
  const auto* core = std::find_if(kArmCores.begin(), kArmCores.end(), [&](const ArmCore& each) {
    return each.implementer == cpu.implementer && each.part == cpu.part;
  });
  if (core == kArmCores.end())
    return {.name = "Arm CPU " + cpu.implementer + ' ' + cpu.part, .float32 = cpu.clock * 2 * 8, .memory = 12e9};
  return {.name = std::string(core->name), .float32 = core->clock * core->pipes * 8, .memory = 12e9};
}

}  // namespace

double CpuRates::gain(BFloat16Unit unit) const {
  switch (unit) {
    case BFloat16Unit::kNone: return 1;
    case BFloat16Unit::kAvx512:
    case BFloat16Unit::kArm: return gain_dot;
    case BFloat16Unit::kAmx: return gain_amx;
  }
  return 1;
}

CpuRates cpu_rates(std::istream& info) {
  const auto cpu = read(info);
  if (!cpu.part.empty()) return arm_rates(cpu);
  const auto* row = std::find_if(kMeasured.begin(), kMeasured.end(), [&](const Measured& each) {
    return each.vendor == cpu.vendor && each.family == cpu.family && cpu.has(each.flag);
  });
  if (row != kMeasured.end())
    return {.name = cpu.name, .float32 = row->float32, .memory = row->memory, .gain_dot = row->gain_dot};
  // Two units of fused multiply-adds. The nominal clock stands for matmuls at a higher one.
  // Zen and Zen+ compute AVX2 in 128-bit halves: at 2.0 GHz, 31 to 36 GFLOP/s a core with 128 to 1,024 tokens.
  const double lanes = cpu.has("avx512f") ? 16 : cpu.has("avx2") && !avx2_in_halves(cpu.family, cpu.model) ? 8 : 4;
  return {.name = cpu.name, .float32 = cpu.clock * lanes * 4, .memory = 12e9};
}

CpuRates cpu_rates() {
  std::ifstream info("/proc/cpuinfo");
  return cpu_rates(info);
}

}  // namespace automodel::estimate
