#include <cpuid.h>
#include <immintrin.h>

#include "base/processor.h"

namespace automodel {
namespace {

/// The four registers that CPUID returns (Intel SDM, volume 2A); zeros for a leaf that does not exist.
struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
  explicit Leaf(unsigned number, unsigned sub = 0) { __get_cpuid_count(number, sub, &a, &b, &c, &d); }
};

bool bit(unsigned word, int place) {
  return (word >> place & 1) != 0;
}

/// `width` bits from `place` on.
int field(unsigned word, int place, int width) {
  return static_cast<int>(word >> place & ((1U << width) - 1));
}

/// Of families from 15 on, which have the extended fields of CPUID's leaf 1. Intel's 6 have no half-wide AVX2.
bool halves(const Leaf& basic) {
  const auto family = field(basic.a, 8, 4) + field(basic.a, 20, 8), model = field(basic.a, 4, 4);
  return avx2_in_halves(family, model + 16 * field(basic.a, 16, 4));
}

/// Whether the OS saves the AVX-512 registers: bits 1, 2 and 5 to 7 of XCR0.
__attribute__((target("xsave"))) bool saves_avx512() {
  constexpr unsigned kStates = 0xe6;
  return (_xgetbv(0) & kStates) == kStates;
}

}  // namespace

// GCC's __builtin_cpu_supports is avoided: any program that links it executes some thirty CPUIDs at startup, each of
// which traps to the hypervisor in a virtual machine. The whole `plan` command takes three milliseconds.
const Processor& processor() {
  static const Processor here = [] {
    const Leaf vendor(0), basic(1), extended(7), further(7, 1);
    Processor out{.intel = vendor.b == signature_INTEL_ebx, .halves = halves(basic), .crc32 = bit(basic.c, 20)};
    if (bit(basic.c, 27) && bit(further.a, 5) && saves_avx512())
      out.bfloat16 = bit(extended.d, 22) ? BFloat16Unit::kAmx : BFloat16Unit::kAvx512;
    return out;
  }();
  return here;
}

}  // namespace automodel
