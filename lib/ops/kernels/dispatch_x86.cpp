#include "base/processor.h"
#include "ops/kernels/kernels.h"

namespace automodel::ops {

namespace avx512 {
Kernels table(const char* name);
MatmulKernels<float> float_matmuls();
}  // namespace avx512
namespace avx512_bfloat16 {
MatmulKernels<c10::BFloat16> bfloat16_matmuls();
}
namespace avx2 {
Kernels table(const char* name);
MatmulKernels<float> float_matmuls();
MatmulKernels<c10::BFloat16> bfloat16_matmuls();
}  // namespace avx2
namespace generic {
Kernels table(const char* name);
}

const Kernels& kernels() {
  static const Kernels chosen = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
      auto table = avx512::table("avx512");
      table.matmul_float = avx512::float_matmuls();
      if (processor().bfloat16 != BFloat16Unit::kNone) table.matmul_bfloat16 = avx512_bfloat16::bfloat16_matmuls();
      return table;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      auto table = avx2::table("avx2");
      table.matmul_float = avx2::float_matmuls();
      table.matmul_bfloat16 = avx2::bfloat16_matmuls();
      return table;
    }
    return generic::table("generic");
  }();
  return chosen;
}

}  // namespace automodel::ops
