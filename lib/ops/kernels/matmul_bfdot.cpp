// bfloat16 GEMM for Arm's BFDOT, which multiplies pairs and accumulates both products.
#include <algorithm>
#include <cstdint>

#include <arm_neon.h>

#include "ops/kernels/kernels.h"
#include "ops/kernels/matmul_tiles.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

struct Pair {
  using Number = c10::BFloat16;
  static constexpr std::int64_t kNumbers = 2;
  static Floats multiply_add(Floats a, Floats b, Floats sums) {
    return vbfdotq_f32(sums, vreinterpretq_bf16_f32(a), vreinterpretq_bf16_f32(b));
  }
  static Floats load(const Number* x, std::int64_t count) {
    if (count >= 2 * kLanes) return vreinterpretq_f32_u16(vld1q_u16(bits(x)));
    std::uint16_t some[2 * kLanes] = {};  // NOLINT(modernize-avoid-c-arrays)
    std::copy_n(bits(x), count, some);
    return vreinterpretq_f32_u16(vld1q_u16(some));
  }
  static Floats load_strided(const Number* x, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
    const auto first = row(x, columns), second = rows < 2 ? vdup_n_u16(0) : row(x + stride, columns);
    return vreinterpretq_f32_u16(vcombine_u16(vzip1_u16(first, second), vzip2_u16(first, second)));
  }
  static void store_rounded(Number* to, Lanes there, Floats sums) {
    std::uint16_t narrow[kLanes];  // NOLINT(modernize-avoid-c-arrays)
    vst1_u16(narrow, vreinterpret_u16_bf16(vcvt_bf16_f32(sums)));
    std::copy_n(narrow, there.count, reinterpret_cast<std::uint16_t*>(to));
  }

 private:
  static const std::uint16_t* bits(const Number* x) { return reinterpret_cast<const std::uint16_t*>(x); }
  static uint16x4_t row(const Number* x, std::int64_t columns) {
    if (columns >= kLanes) return vld1_u16(bits(x));
    std::uint16_t some[kLanes] = {};  // NOLINT(modernize-avoid-c-arrays)
    std::copy_n(bits(x), std::max<std::int64_t>(columns, 0), some);
    return vld1_u16(some);
  }
};

}  // namespace

MatmulKernels<c10::BFloat16> bfloat16_matmuls();
MatmulKernels<c10::BFloat16> bfloat16_matmuls() {
  return matmuls<Pair>();
}

}  // namespace automodel::ops::AUTOMODEL_ISA
