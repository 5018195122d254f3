// float GEMM by tiles.
#include <cstdint>

#include "ops/kernels/kernels.h"
#include "ops/kernels/matmul_tiles.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

struct Float {
  using Number = float;
  static constexpr std::int64_t kNumbers = 1;
  static Floats multiply_add(Floats a, Floats b, Floats sums) { return add_product(sums, a, b); }
  static Floats load(const float* x, std::int64_t count) { return AUTOMODEL_ISA::load(x, lanes(count)); }
  static Floats load_strided(const float* x, std::int64_t /*stride*/, std::int64_t /*rows*/, std::int64_t columns) {
    return load(x, columns);
  }
};

}  // namespace

MatmulKernels<float> float_matmuls();
MatmulKernels<float> float_matmuls() {
  return matmuls<Float>();
}

}  // namespace automodel::ops::AUTOMODEL_ISA
