#include "ops/host_matmul.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <dlfcn.h>

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "base/processor.h"
#include "ops/kernels/device.h"
#include "ops/kernels/kernels.h"

namespace automodel::ops {
namespace {

using Bits = c10::BFloat16;

/// cblas_gemm_bf16bf16f32 of MKL, which LibTorch links and exports: layout, transa, transb, m, n, k, alpha, a, lda, b,
/// ldb, beta, c, ldc. Looked up at run time, because other builds of LibTorch lack it.
using Gemm = void (*)(int, int, int, int, int, int, float, const Bits*, int, const Bits*, int, float, float*, int);
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;

Gemm find_gemm() {
  // On processors of other vendors MKL uses slower code.
  if (processor().bfloat16 == BFloat16Unit::kNone || !processor().intel) return nullptr;
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

/// Range of token counts for which our kernel was measured to be faster than LibTorch's library.
struct Tokens {
  std::int64_t fewest = 1, most = 0;
  bool hold(std::int64_t n) const { return n >= fewest && n <= most; }
};
template <class T>
struct Choice {
  MatmulKernels<T> kernel;
  std::array<Tokens, kKinds> tokens;
};

/// With fewer tokens the GEMM is close to matrix-vector products, for which libraries have special code; smaller
/// weights do not fill tiles.
constexpr std::int64_t kFewTokens = 24, kSmallWeight = 64;
constexpr Tokens kFromFew = {kFewTokens, std::numeric_limits<std::int64_t>::max()};

/// ATEN_CPU_CAPABILITY disables these kernels along with LibTorch's own AVX-512 code.
bool kernels_allowed() {
  return at::get_cpu_capability() == "AVX512";
}

template <class T>
const Choice<T>& choice();

/// On Intel's processors, what the library spends on packing the weight, or on the gradient's memory traffic, is small
/// with many tokens, so our kernel serves only small counts; other accumulating GEMMs, those of attention, stay with
/// the library. On other processors MKL uses AVX2 code, so our kernels serve all but weight gradients of many tokens,
/// where MKL is as fast.
template <>
const Choice<float>& choice() {
  static const Choice<float> found = [] {
    if (!kernels_allowed()) return Choice<float>{};
    const auto& kernel = kernels().matmul_float;
    if (!processor().intel) return Choice<float>{kernel, {kFromFew, kFromFew, Tokens{kFewTokens, 768}}};
    return Choice<float>{{.rounded = kernel.rounded}, {Tokens{kFewTokens, 256}, Tokens{}, Tokens{kFewTokens, 192}}};
  }();
  return found;
}

/// Without AMX, oneDNN has only the same instructions as our kernel, and repacks the weight for every GEMM. Weight
/// gradients are accumulated in float32 instead, by host_matmul().
template <>
const Choice<Bits>& choice() {
  static const Choice<Bits> found = [] {
    if (!kernels_allowed() || gemm() != nullptr) return Choice<Bits>{};
    return Choice<Bits>{kernels().matmul_bfloat16, {kFromFew, kFromFew, Tokens{}}};
  }();
  return found;
}

/// This thread's GEMM workspace.
float* matmul_workspace() {
  struct alignas(64) Line {
    std::array<float, 16> lanes;
  };
  thread_local const std::unique_ptr<Line[]> workspace(new Line[kMatmulWorkspace / 16]);
  return workspace[0].lanes.data();
}

/// Splits the rows of a weight gradient, or the columns of other GEMMs, among threads.
template <class T, class Out>
void run_divided(Matmul<T, Out> run, OutputMatrix<Out> out, bool fresh, const MatrixView<T>& a, const MatrixView<T>& b,
                 std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  constexpr std::int64_t kPiece = 32;  // columns per panel
  const auto whole = a.transposed ? rows : columns;
  at::parallel_for(0, (whole + kPiece - 1) / kPiece, 1, [&](std::int64_t from, std::int64_t to) {
    const auto first = from * kPiece, size = std::min(whole, to * kPiece) - first;
    if (a.transposed)
      run({out.data + first * out.stride, out.stride}, fresh, {a.data + first, a.stride, true}, b, size, inner, columns,
          matmul_workspace());
    else
      run({out.data + first, out.stride}, fresh, a,
          {b.data + (b.transposed ? first * b.stride : first), b.stride, b.transposed}, rows, inner, size,
          matmul_workspace());
  });
}

template <class T>
bool rows_of(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == c10::CppTypeToScalarType<T>::value && is_row_major(x);
}

/// A GEMM of a linear layer with all operands of type T, by our kernel; false, having done nothing, if the kernel does
/// not suit. All operands must be row-major with contiguous rows; the weight's are those of [outputs, inputs].
template <class T>
bool computed(Kind kind, at::Tensor& out, bool fresh, const at::Tensor& a, const at::Tensor& b) {
  const auto& [kernel, tokens] = choice<T>();
  const bool gradient = kind == kWeightGradient;
  const at::Tensor& weight = gradient ? out : b;
  const auto inner = gradient ? a.size(0) : a.size(1);
  if (!tokens[kind].hold(a.size(0)) || weight.size(0) < kSmallWeight || weight.size(1) < kSmallWeight) return false;
  if (!std::is_same_v<T, float> && inner > kernel.depth) return false;
  if (!rows_of<T>(out) || !rows_of<T>(a) || !rows_of<T>(b)) return false;
  run_divided(kernel.rounded, OutputMatrix<T>{out.mutable_data_ptr<T>(), row_stride(out)}, fresh,
              MatrixView<T>{a.const_data_ptr<T>(), row_stride(a), gradient},
              MatrixView<T>{b.const_data_ptr<T>(), row_stride(b), kind == kForward}, out.size(0), inner, out.size(1));
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
  return choice<T>().kernel.sum != nullptr;
}

template <class T>
bool has_host_matmul() {
  return (std::is_same_v<T, Bits> && gemm() != nullptr) || has_own_matmul<T>();
}

template <class T>
void host_matmul(float* out, std::int64_t stride, bool fresh, const MatrixView<T>& a, const MatrixView<T>& b,
                 std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  if (has_own_matmul<T>()) {
    run_divided(choice<T>().kernel.sum, OutputMatrix<float>{out, stride}, fresh, a, b, rows, inner, columns);
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
