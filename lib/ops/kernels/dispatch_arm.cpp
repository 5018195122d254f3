#include "base/processor.h"
#include "ops/kernels/kernels.h"

namespace automodel::ops {

namespace neon {
Kernels table(const char* name);
MatmulKernels<c10::BFloat16> bfloat16_matmuls();
}  // namespace neon
namespace neon_bfloat16 {
MatmulKernels<c10::BFloat16> bfloat16_matmuls();
}

const Kernels& kernels() {
  static const Kernels chosen = [] {
    auto table = neon::table("neon");
    const bool dot = processor().bfloat16 == BFloat16Unit::kArm;
    table.matmul_bfloat16 = dot ? neon_bfloat16::bfloat16_matmuls() : neon::bfloat16_matmuls();
    return table;
  }();
  return chosen;
}

}  // namespace automodel::ops
