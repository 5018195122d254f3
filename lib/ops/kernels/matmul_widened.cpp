// bfloat16 GEMM for processors without an instruction for it: numbers are widened to floats while they are packed.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "ops/kernels/kernels.h"
#include "ops/kernels/matmul_tiles.h"
#include "ops/kernels/rounding.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

struct Widened {
  using Number = c10::BFloat16;
  static constexpr std::int64_t kNumbers = 1;
  static Floats multiply_add(Floats a, Floats b, Floats sums) { return add_product(sums, a, b); }
  static Floats load(const Number* x, std::int64_t count) { return load_strided(x, 0, 1, count); }
  /// Vectors are read whole where `rows` rows hold that much, because there is no masked load of 16 bits.
  static Floats load_strided(const Number* x, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
    if (columns >= kLanes || (rows - 1) * stride + columns >= kLanes) return widened(x);
    Number some[kLanes] = {};  // NOLINT(modernize-avoid-c-arrays)
    for (std::int64_t i = 0; i < columns; ++i) some[i] = x[i];
    return widened(some);
  }
  static void store_rounded(Number* to, Lanes there, Floats sums) {
    float wide[kLanes];     // NOLINT(modernize-avoid-c-arrays)
    Number narrow[kLanes];  // NOLINT(modernize-avoid-c-arrays)
    store(wide, sums);
    for (std::int64_t i = 0; i < kLanes; ++i) narrow[i] = rounded<Number>(wide[i]);
    std::copy_n(narrow, there.count, to);
  }

 private:
  static Floats widened(const Number* x) {
    using Halves [[gnu::vector_size(2 * kLanes)]] = std::uint16_t;
    using Words [[gnu::vector_size(4 * kLanes)]] = std::uint32_t;
    Halves bits;
    std::memcpy(&bits, x, sizeof(bits));
    return std::bit_cast<Floats>(__builtin_convertvector(bits, Words) << 16);
  }
};

}  // namespace

MatmulKernels<c10::BFloat16> bfloat16_matmuls();
MatmulKernels<c10::BFloat16> bfloat16_matmuls() {
  return matmuls<Widened>();
}

}  // namespace automodel::ops::AUTOMODEL_ISA
