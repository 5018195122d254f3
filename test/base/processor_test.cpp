#include "base/processor.h"

#include <array>
#include <cstdint>
#include <fstream>

#include <catch2/catch.hpp>

namespace automodel {

#if defined(__x86_64__)
TEST_CASE("detected CPU features match the compiler's built-in detection") {
  __builtin_cpu_init();
  CHECK(processor().crc32 == (__builtin_cpu_supports("sse4.2") != 0));
  CHECK(processor().intel == (__builtin_cpu_is("intel") != 0));
  CHECK(processor().halves == (__builtin_cpu_is("znver1") != 0));
  CHECK((processor().bfloat16 != BFloat16Unit::kNone) == (__builtin_cpu_supports("avx512bf16") != 0));
}
#elif defined(__aarch64__)
TEST_CASE("detected CPU features match /proc/self/auxv") {
  std::ifstream entries("/proc/self/auxv", std::ios::binary);
  for (std::array<std::uint64_t, 2> entry{}; entries.read(reinterpret_cast<char*>(entry.data()), sizeof(entry));) {
    if (entry[0] == 16) CHECK(processor().crc32 == ((entry[1] >> 7 & 1U) != 0));  // AT_HWCAP
    if (entry[0] == 26)                                                           // AT_HWCAP2
      CHECK((processor().bfloat16 == BFloat16Unit::kArm) == ((entry[1] >> 14 & 1U) != 0));
  }
}
#endif

}  // namespace automodel
