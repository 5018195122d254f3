#include "ops/host_product.h"

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

/// cblas_gemm_bf16bf16f32 of MKL, which LibTorch links and exports: layout, transposition of a and b, m, n, k, alpha, a
/// and the distance of its rows, b, beta, c. Found at run time: other builds of LibTorch are without it.
using Gemm = void (*)(int, int, int, int, int, int, float, const Bits*, int, const Bits*, int, float, float*, int);
constexpr int kRowsFirst = 101, kAsItLies = 111, kTransposed = 112;

Gemm find_gemm() {
  // On other makers' processors MKL takes slower code.
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

bool rows_lie(const at::Tensor& x) {
  return (x.stride(1) == 1 || x.size(1) <= 1) && (x.stride(0) >= x.size(1) || x.size(0) <= 1);
}

std::int64_t distance_of_rows(const at::Tensor& x) {
  return std::max<std::int64_t>({1, x.size(1), x.size(0) > 1 ? x.stride(0) : 0});
}

/// `copy` owns what has to be laid out anew.
Lying<Bits> lying(const at::Tensor& x, at::Tensor& copy) {
  if (rows_lie(x)) return {x.const_data_ptr<Bits>(), distance_of_rows(x)};
  if (const auto turned = x.t(); rows_lie(turned)) return {x.const_data_ptr<Bits>(), distance_of_rows(turned), true};
  copy = x.contiguous();
  return {copy.const_data_ptr<Bits>(), distance_of_rows(copy)};
}

/// The products of a linear layer: x W^T, dY W and dY^T X for a weight that lies as [outputs, inputs].
enum Kind : std::size_t { kForward, kInputGradient, kWeightGradient, kKinds };

/// Tokens for which this program's kernel was measured to be faster than LibTorch's library.
struct Tokens {
  std::int64_t fewest = 1, most = 0;
  bool hold(std::int64_t n) const { return n >= fewest && n <= most; }
};
template <class T>
struct Choice {
  ProductKernels<T> kernel;
  std::array<Tokens, kKinds> tokens;
};

/// With fewer tokens a product is one of vectors, for which libraries have code of their own; smaller weights leave
/// tiles empty.
constexpr std::int64_t kFewTokens = 24, kSmallWeight = 64;
constexpr Tokens kFromFew = {kFewTokens, std::numeric_limits<std::int64_t>::max()};

/// ATEN_CPU_CAPABILITY takes these kernels away as it does LibTorch's own for AVX-512.
bool kernels_allowed() {
  return at::get_cpu_capability() == "AVX512";
}

template <class T>
const Choice<T>& choice();

/// On Intel's processors the library's share of time for laying out weights, or for the gradient's memory, is small
/// with many tokens; other sums of products, those of attention, are left to it. On other processors MKL takes code for
/// AVX2; a gradient of many tokens it adds as fast.
template <>
const Choice<float>& choice() {
  static const Choice<float> found = [] {
    if (!kernels_allowed()) return Choice<float>{};
    const auto& kernel = kernels().product_float;
    if (!processor().intel) return Choice<float>{kernel, {kFromFew, kFromFew, Tokens{kFewTokens, 768}}};
    return Choice<float>{{.rounded = kernel.rounded}, {Tokens{kFewTokens, 256}, Tokens{}, Tokens{kFewTokens, 192}}};
  }();
  return found;
}

/// Where there is no AMX oneDNN has the same instructions and lays the weight out for each product. A weight gradient
/// is summed in float32, by host_product.
template <>
const Choice<Bits>& choice() {
  static const Choice<Bits> found = [] {
    if (!kernels_allowed() || gemm() != nullptr) return Choice<Bits>{};
    return Choice<Bits>{kernels().product_bfloat16, {kFromFew, kFromFew, Tokens{}}};
  }();
  return found;
}

/// This thread's memory for a product.
float* product_room() {
  struct alignas(64) Line {
    std::array<float, 16> lanes;
  };
  thread_local const std::unique_ptr<Line[]> room(new Line[kProductRoom / 16]);
  return room[0].lanes.data();
}

/// Divides the rows of a weight gradient, the columns of other products, among threads.
template <class T, class Out>
void run_divided(Product<T, Out> run, RowsOf<Out> out, bool fresh, const Lying<T>& a, const Lying<T>& b,
                 std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  constexpr std::int64_t kPiece = 32;  // columns of a panel
  const auto whole = a.turned ? rows : columns;
  at::parallel_for(0, (whole + kPiece - 1) / kPiece, 1, [&](std::int64_t from, std::int64_t to) {
    const auto first = from * kPiece, size = std::min(whole, to * kPiece) - first;
    if (a.turned)
      run({out.data + first * out.distance, out.distance}, fresh, {a.data + first, a.distance, true}, b, size, inner,
          columns, product_room());
    else
      run({out.data + first, out.distance}, fresh, a,
          {b.data + (b.turned ? first * b.distance : first), b.distance, b.turned}, rows, inner, size, product_room());
  });
}

template <class T>
bool rows_of(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == c10::CppTypeToScalarType<T>::value && rows_lie(x);
}

/// A product of a linear layer, of T alone, by this program's kernel; false, and nothing done, where it does not suit.
/// Both operands have rows that lie in one piece, as the weight does.
template <class T>
bool computed(Kind kind, at::Tensor& out, bool fresh, const at::Tensor& a, const at::Tensor& b) {
  const auto& [kernel, tokens] = choice<T>();
  const bool gradient = kind == kWeightGradient;
  const at::Tensor& weight = gradient ? out : b;
  const auto inner = gradient ? a.size(0) : a.size(1);
  if (!tokens[kind].hold(a.size(0)) || weight.size(0) < kSmallWeight || weight.size(1) < kSmallWeight) return false;
  if (!std::is_same_v<T, float> && inner > kernel.depth) return false;
  if (!rows_of<T>(out) || !rows_of<T>(a) || !rows_of<T>(b)) return false;
  run_divided(kernel.rounded, RowsOf<T>{out.mutable_data_ptr<T>(), distance_of_rows(out)}, fresh,
              Lying<T>{a.const_data_ptr<T>(), distance_of_rows(a), gradient},
              Lying<T>{b.const_data_ptr<T>(), distance_of_rows(b), kind == kForward}, out.size(0), inner, out.size(1));
  return true;
}

}  // namespace

bool host_product_with_weight(at::Tensor out, const at::Tensor& x, const at::Tensor& weight) {
  if (!x.is_cpu() || device_kernels(x) != nullptr) return false;
  const bool turned = !rows_lie(weight);
  const auto kind = turned ? kForward : kInputGradient;
  const auto lies = turned ? weight.t() : weight;
  return computed<float>(kind, out, true, x, lies) || computed<Bits>(kind, out, true, x, lies);
}

template <class T>
bool has_own_product() {
  return choice<T>().kernel.sum != nullptr;
}

template <class T>
bool has_host_product() {
  return (std::is_same_v<T, Bits> && gemm() != nullptr) || has_own_product<T>();
}

template <class T>
void host_product(float* out, std::int64_t distance, bool fresh, const Lying<T>& a, const Lying<T>& b,
                  std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  if (has_own_product<T>()) {
    run_divided(choice<T>().kernel.sum, RowsOf<float>{out, distance}, fresh, a, b, rows, inner, columns);
    return;
  }
  if constexpr (std::is_same_v<T, Bits>) {
    const auto whole = [](std::int64_t number) { return static_cast<int>(number); };
    gemm()(kRowsFirst, a.turned ? kTransposed : kAsItLies, b.turned ? kTransposed : kAsItLies, whole(rows),
           whole(columns), whole(inner), 1, a.data, whole(a.distance), b.data, whole(b.distance), fresh ? 0.0F : 1.0F,
           out, whole(distance));
  }
}

template bool has_own_product<float>();
template bool has_own_product<Bits>();
template bool has_host_product<float>();
template bool has_host_product<Bits>();
template void host_product(float*, std::int64_t, bool, const Lying<float>&, const Lying<float>&, std::int64_t,
                           std::int64_t, std::int64_t);
template void host_product(float*, std::int64_t, bool, const Lying<Bits>&, const Lying<Bits>&, std::int64_t,
                           std::int64_t, std::int64_t);

bool host_product(at::Tensor out, bool fresh, const at::Tensor& a, const at::Tensor& b) {
  if (device_kernels(a) != nullptr) return false;  // a GPU computes, or stands in for the CPU in a test
  if (computed<float>(kWeightGradient, out, fresh, a, b)) return true;
  if (!out.is_cpu() || out.scalar_type() != at::kFloat || a.scalar_type() != at::kBFloat16 ||
      b.scalar_type() != at::kBFloat16 || !has_host_product() || !rows_lie(out))
    return false;
  const auto rows = out.size(0), columns = out.size(1), inner = a.size(0);
  if (rows == 0 || columns == 0) return true;
  if (inner == 0) {
    if (fresh) out.zero_();
    return true;
  }
  at::Tensor left, right;
  auto turned = lying(a, left);
  turned.turned = !turned.turned;
  const auto other = lying(b, right);
  const auto distance = distance_of_rows(out);
  for (const auto size : {rows, columns, inner, turned.distance, other.distance, distance})
    if (!fits(size)) return false;
  host_product(out.mutable_data_ptr<float>(), distance, fresh, turned, other, rows, inner, columns);
  return true;
}

}  // namespace automodel::ops
