#include "base/processor.h"

#include <catch2/catch.hpp>

namespace automodel {

#if defined(__x86_64__)
TEST_CASE("detected CPU features match the compiler's built-in detection") {
  __builtin_cpu_init();
  CHECK(processor().crc32 == (__builtin_cpu_supports("sse4.2") != 0));
  CHECK(processor().intel == (__builtin_cpu_is("intel") != 0));
  CHECK((processor().bfloat16 != BFloat16Unit::kNone) == (__builtin_cpu_supports("avx512bf16") != 0));
}
#endif

}  // namespace automodel
