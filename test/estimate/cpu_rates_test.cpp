// Rates of processors from the text of /proc/cpuinfo.
#include "estimate/cpu_rates.h"

#include <sstream>
#include <string>

#include <catch2/catch.hpp>

namespace automodel::estimate {
namespace {

CpuRates rates_of(const std::string& vendor, int family, const std::string& flags, int model = 17) {
  std::istringstream info("processor\t: 0\nvendor_id\t: " + vendor + "\ncpu family\t: " + std::to_string(family) +
                          "\nmodel\t\t: " + std::to_string(model) +
                          "\nmodel name\t: A CPU\ncpu MHz\t\t: 3000.000\nflags\t\t: " + flags +
                          "\nbugs\t\t: none\n\nprocessor\t: 1\nvendor_id\t: other\nflags\t\t: sse\n");
  return cpu_rates(info);
}

}  // namespace

TEST_CASE("measured processors are known by vendor, family and instructions", "[estimate]") {
  const auto narrow = rates_of("AuthenticAMD", 25, "fpu avx2 avx512f");
  CHECK(narrow.name == "A CPU");
  CHECK(narrow.float32 == 100e9);
  CHECK(rates_of("AuthenticAMD", 26, "fpu avx2 avx512f avx512_bf16").float32 == 255e9);  // as many lanes, twice as wide
  const auto halves = rates_of("GenuineIntel", 6, "avx2 avx512f avx512_bf16");
  CHECK(halves.gain(BFloat16Unit::kAvx512) < 1);
  CHECK(rates_of("GenuineIntel", 6, "avx2 avx512f avx512_bf16 amx_bf16").float32 > halves.float32);
  CHECK(halves.gain(BFloat16Unit::kAmx) > 2);
  CHECK(halves.gain(BFloat16Unit::kNone) == 1);
}

TEST_CASE("other processors: clock times lanes", "[estimate]") {
  CHECK(rates_of("AuthenticAMD", 25, "fpu avx2 fma").float32 == 3e9 * 8 * 4);      // without AVX-512
  CHECK(rates_of("AuthenticAMD", 23, "fpu avx2 fma", 49).float32 == 3e9 * 8 * 4);  // Zen 2
  CHECK(rates_of("AuthenticAMD", 23, "fpu avx2 fma", 1).float32 == 3e9 * 4 * 4);   // Zen: AVX2 in halves
  CHECK(rates_of("HygonGenuine", 24, "fpu avx2 fma", 1).float32 == 3e9 * 4 * 4);   // Dhyana, a Zen
  CHECK(rates_of("Other", 6, "avx2 avx512f").float32 == 3e9 * 16 * 4);
  CHECK(rates_of("Other", 6, "avx512fancy").float32 == 3e9 * 4 * 4);
  std::istringstream nothing;
  CHECK(cpu_rates(nothing).float32 > 0);
  CHECK(cpu_rates(nothing).name == "unknown CPU");
}

TEST_CASE("Arm's processors are known by implementer and part", "[estimate]") {
  const auto rates = [](const std::string& implementer, const std::string& part) {
    std::istringstream info(
        "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd crc32 bf16\nCPU implementer\t: " + implementer +
        "\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: " + part +
        "\nCPU revision\t: 0\n\nprocessor\t: 1\nCPU part\t: 0xfff\n");
    return cpu_rates(info);
  };
  CHECK(rates("0x41", "0xd4f").name == "Arm Neoverse V2");
  CHECK(rates("0x41", "0xd4f").float32 == 2.8e9 * 4 * 8);
  CHECK(rates("0x41", "0xd0c").float32 == 2.5e9 * 2 * 8);
  CHECK(rates("0x46", "0x001").name == "Arm CPU 0x46 0x001");
  CHECK(rates("0x46", "0x001").float32 == 2.5e9 * 2 * 8);
  CHECK(rates("0x41", "0xd4f").gain(BFloat16Unit::kArm) > 1);
}

}  // namespace automodel::estimate
