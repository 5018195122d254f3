#include "ops/host_matmul.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include <dlfcn.h>

#include <ATen/Version.h>

#include "base/processor.h"
#include "ops/kernels/device.h"
#include "ops/kernels/kernels.h"
#include "ops/tiled_matmul.h"

namespace automodel::ops {
namespace {

using Bits = c10::BFloat16;

/// cblas_gemm_bf16bf16f32 of MKL, which LibTorch links and exports: layout, transa, transb, m, n, k, alpha, a, lda, b,
/// ldb, beta, c, ldc. Looked up at run time, because other builds of LibTorch lack it.
using Gemm = void (*)(int, int, int, int, int, int, float, const Bits*, int, const Bits*, int, float, float*, int);
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;

Gemm find_gemm() {
  // Without AMX it has only the instructions of our tiles.
  if (processor().bfloat16 != BFloat16Unit::kAmx) return nullptr;
  return reinterpret_cast<Gemm>(dlsym(RTLD_DEFAULT, "cblas_gemm_bf16bf16f32"));
}

Gemm gemm() {
  static const Gemm found = find_gemm();
  return found;
}

bool fits(std::int64_t number) {
  return number <= std::numeric_limits<int>::max();
}

bool is_row_major(const at::Tensor& x) {
  return (x.stride(1) == 1 || x.size(1) <= 1) && (x.stride(0) >= x.size(1) || x.size(0) <= 1);
}

std::int64_t row_stride(const at::Tensor& x) {
  return std::max<std::int64_t>({1, x.size(1), x.size(0) > 1 ? x.stride(0) : 0});
}

/// x as a GEMM operand. If neither x nor its transpose is row-major, it is copied; `copy` owns the copy.
MatrixView<Bits> view_of(const at::Tensor& x, at::Tensor& copy) {
  if (is_row_major(x)) return {x.const_data_ptr<Bits>(), row_stride(x)};
  if (const auto transposed = x.t(); is_row_major(transposed))
    return {x.const_data_ptr<Bits>(), row_stride(transposed), true};
  copy = x.contiguous();
  return {copy.const_data_ptr<Bits>(), row_stride(copy)};
}

/// The GEMMs of a linear layer: x W^T, dY W and dY^T X, for a weight stored as [outputs, inputs].
enum Kind : std::size_t { kForward, kInputGradient, kWeightGradient, kKinds };

/// Range of token counts for which our tiles were measured to be faster than LibTorch's library (bench/gemm_bench).
struct Tokens {
  std::int64_t fewest = 1, most = 0;
  bool hold(std::int64_t n) const { return n >= fewest && n <= most; }
};
/// Per kind; whether the tiles also serve accumulating GEMMs of other shapes, those of attention; GEMMs whose sums are
/// rounded once but too deep for one tile, or with less than kSmallWeight rows or columns of the weight; and how many
/// outputs x W^T needs.
struct Choice {
  std::array<Tokens, kKinds> tokens;
  bool sums = false, any_size = false;
  std::int64_t fewest_outputs = 1;
};

/// With fewer tokens the GEMM is close to matrix-vector products, for which libraries have special code; smaller
/// weights do not fill tiles.
constexpr std::int64_t kFewTokens = 24, kSmallWeight = 64;
constexpr Tokens kFromFew = {kFewTokens, std::numeric_limits<std::int64_t>::max()};
constexpr Tokens kFromEight = {8, std::numeric_limits<std::int64_t>::max()};
constexpr Tokens kAny = {1, std::numeric_limits<std::int64_t>::max()};

bool runs(std::string_view instruction_set) {
  return kernels().instruction_set == instruction_set;
}
bool wide_vectors() {
  return runs("avx512");
}

/// ATEN_CPU_CAPABILITY disables the tiles along with LibTorch's own code for such vectors. On Arm it names SVE, which
/// they do not use.
template <class T>
bool tiles_allowed() {
  if (runs("neon")) return has_tiles<T>();
  return has_tiles<T>() && at::get_cpu_capability() == (wide_vectors() ? "AVX512" : "AVX2");
}

template <class T>
const Choice& choice();

/// MKL has AVX-512 code for Intel's processors only. There it is up to a tenth faster with many tokens, because what it
/// spends on packing the weight, or on the gradient's memory traffic, is then small, and always for dY W. On other
/// processors it uses AVX2: the tiles have 2.2 times its rate where vector units are 512 bits wide, 0.96 to 1.1 times
/// in weight gradients of many tokens where AVX-512 runs in 256-bit halves. Where there is only AVX2 (EPYC 7003) it
/// is 1.05 to 1.7 times in x W^T and 1.2 to 1.9 times in weight gradients of few tokens, and 0.85 to 1 times in the
/// others. Where that runs in 128-bit halves (EPYC 7001), x W^T with many outputs gains up to a fifth; with 512 outputs
/// and fewer, and in the other two, MKL has 1.05 to 1.3 times the rate of the tiles.
template <>
const Choice& choice<float>() {
  static const Choice found = [] {
    if (!tiles_allowed<float>()) return Choice{};  // so on Arm, where NVIDIA's library (NVPL) computes them
    constexpr std::int64_t kManyOutputs = 640;
    if (processor().halves) return Choice{.tokens = {kFromFew}, .fewest_outputs = kManyOutputs};
    if (!wide_vectors()) return processor().intel ? Choice{} : Choice{{kFromEight, Tokens{}, Tokens{8, 48}}};
    if (!processor().intel) return Choice{{kFromFew, kFromFew, kFromFew}, true};
    return Choice{{Tokens{kFewTokens, 256}, Tokens{}, Tokens{kFewTokens, 256}}};
  }();
  return found;
}

/// Without AMX, oneDNN has only the same instructions as our tiles, and repacks the weight for every GEMM; without
/// AVX-512 it has none, and LibTorch's own loops take over; on Arm its library rounds a sum more than once. Weight
/// gradients are accumulated in float32 instead, by host_matmul().
template <>
const Choice& choice<Bits>() {
  static const Choice found = [] {
    if (!tiles_allowed<Bits>() || gemm() != nullptr) return Choice{};
    if (wide_vectors()) return Choice{{kFromFew, kFromFew, Tokens{}}, true};
    return Choice{{kAny, kAny, Tokens{}}, true, true};
  }();
  return found;
}

template <class T>
bool rows_of(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == c10::CppTypeToScalarType<T>::value && is_row_major(x);
}

/// A GEMM of a linear layer with all operands of type T, by our kernel; false, having done nothing, if the kernel does
/// not suit. All operands must be row-major with contiguous rows; the weight's are those of [outputs, inputs].
template <class T>
bool computed(Kind kind, at::Tensor& out, bool fresh, const at::Tensor& a, const at::Tensor& b) {
  const bool gradient = kind == kWeightGradient;
  const at::Tensor& weight = gradient ? out : b;
  const auto inner = gradient ? a.size(0) : a.size(1);
  const auto& chosen = choice<T>();
  if (!chosen.tokens[kind].hold(a.size(0)) || out.numel() == 0 || inner == 0) return false;
  if (kind == kForward && weight.size(0) < chosen.fewest_outputs) return false;
  const bool small = weight.size(0) < kSmallWeight || weight.size(1) < kSmallWeight;
  const bool deep = !std::is_same_v<T, float> && inner > deepest_rounded();
  if ((small || deep) && !chosen.any_size) return false;
  if (!rows_of<T>(out) || !rows_of<T>(a) || !rows_of<T>(b)) return false;
  const OutputMatrix<T> to = {out.mutable_data_ptr<T>(), row_stride(out)};
  const MatrixView<T> left = {a.const_data_ptr<T>(), row_stride(a), gradient};
  const MatrixView<T> right = {b.const_data_ptr<T>(), row_stride(b), kind == kForward};
  if constexpr (std::is_same_v<T, float>)
    tiled_matmul(to, fresh, left, right, out.size(0), inner, out.size(1));
  else
    tiled_matmul(to, left, right, out.size(0), inner, out.size(1));
  return true;
}

}  // namespace

bool host_matmul_with_weight(at::Tensor out, const at::Tensor& x, const at::Tensor& weight) {
  if (!x.is_cpu() || device_kernels(x) != nullptr) return false;
  const bool transposed = !is_row_major(weight);
  const auto kind = transposed ? kForward : kInputGradient;
  const auto stored = transposed ? weight.t() : weight;
  return computed<float>(kind, out, true, x, stored) || computed<Bits>(kind, out, true, x, stored);
}

template <class T>
bool has_own_matmul() {
  return choice<T>().sums;
}

template <class T>
bool has_host_matmul() {
  return (std::is_same_v<T, Bits> && gemm() != nullptr) || has_own_matmul<T>();
}

template <class T>
void host_matmul(float* out, std::int64_t stride, bool fresh, const MatrixView<T>& a, const MatrixView<T>& b,
                 std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  if (has_own_matmul<T>()) {
    tiled_matmul(OutputMatrix<float>{out, stride}, fresh, a, b, rows, inner, columns);
    return;
  }
  if constexpr (std::is_same_v<T, Bits>) {
    const auto whole = [](std::int64_t number) { return static_cast<int>(number); };
    gemm()(kRowMajor, a.transposed ? kTranspose : kNoTranspose, b.transposed ? kTranspose : kNoTranspose, whole(rows),
           whole(columns), whole(inner), 1, a.data, whole(a.stride), b.data, whole(b.stride), fresh ? 0.0F : 1.0F, out,
           whole(stride));
  }
}

template bool has_own_matmul<float>();
template bool has_own_matmul<Bits>();
template bool has_host_matmul<float>();
template bool has_host_matmul<Bits>();
template void host_matmul(float*, std::int64_t, bool, const MatrixView<float>&, const MatrixView<float>&, std::int64_t,
                          std::int64_t, std::int64_t);
template void host_matmul(float*, std::int64_t, bool, const MatrixView<Bits>&, const MatrixView<Bits>&, std::int64_t,
                          std::int64_t, std::int64_t);

bool host_matmul(at::Tensor out, bool fresh, const at::Tensor& a, const at::Tensor& b) {
  if (device_kernels(a) != nullptr) return false;  // a GPU computes this, or its emulation in a test
  if (computed<float>(kWeightGradient, out, fresh, a, b)) return true;
  if (!out.is_cpu() || out.scalar_type() != at::kFloat || a.scalar_type() != at::kBFloat16 ||
      b.scalar_type() != at::kBFloat16 || !has_host_matmul() || !is_row_major(out))
    return false;
  const auto rows = out.size(0), columns = out.size(1), inner = a.size(0);
  if (rows == 0 || columns == 0) return true;
  if (inner == 0) {
    if (fresh) out.zero_();
    return true;
  }
  at::Tensor left, right;
  auto a_transposed = view_of(a, left);
  a_transposed.transposed = !a_transposed.transposed;
  const auto b_view = view_of(b, right);
  const auto stride = row_stride(out);
  for (const auto size : {rows, columns, inner, a_transposed.stride, b_view.stride, stride})
    if (!fits(size)) return false;
  host_matmul(out.mutable_data_ptr<float>(), stride, fresh, a_transposed, b_view, rows, inner, columns);
  return true;
}

}  // namespace automodel::ops
