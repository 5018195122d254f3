#include "ops/host_product.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <new>

#include <dlfcn.h>

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "base/processor.h"
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

/// ATEN_CPU_CAPABILITY takes these kernels away as it does LibTorch's own for AVX-512.
bool kernels_allowed() {
  return at::get_cpu_capability() == "AVX512";
}

/// Tokens for which a kernel of float32 was measured to be faster than LibTorch's library.
struct Tokens {
  std::int64_t fewest = 1, most = 0;
  bool holds(std::int64_t tokens) const { return tokens >= fewest && tokens <= most; }
};
/// Of each product of a linear layer.
struct Choice {
  ProductKernel<float> run = nullptr;
  Tokens forward, input_gradient, weight_gradient;
};

/// Fewer than 24 tokens are products of vectors, for which libraries have code of their own. On Intel's processors the
/// library's share of time for laying out weights, or for the gradient's memory, is small with many tokens. On others MKL
/// takes code for AVX2.
const Choice& choice() {
  constexpr auto kAny = std::numeric_limits<std::int64_t>::max();
  static const Choice found = [] {
    const auto run = kernels_allowed() ? kernels().product_float : nullptr;
    return processor().intel ? Choice{run, {24, 256}, {}, {24, 192}} : Choice{run, {24, kAny}, {24, kAny}, {24, kAny}};
  }();
  return found;
}

/// Smaller weights leave tiles empty.
constexpr std::int64_t kSmallWeight = 64;

bool float_rows(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && rows_lie(x);
}

bool suits(const Tokens& tokens, std::int64_t n, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  return choice().run != nullptr && tokens.holds(n) && float_rows(a) && float_rows(b) && float_rows(c);
}

bool wide(std::int64_t rows, std::int64_t columns) {
  return rows >= kSmallWeight && columns >= kSmallWeight;
}

Lying<float> lying(const at::Tensor& x, bool turned) {
  return {x.const_data_ptr<float>(), distance_of_rows(x), turned};
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
template <class T>
void run_divided(ProductKernel<T> run, RowsOf<float> out, bool fresh, const Lying<T>& a, const Lying<T>& b,
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

RowsOf<float> rows_of(at::Tensor& out) {
  return {out.mutable_data_ptr<float>(), distance_of_rows(out)};
}

ProductKernel<Bits> bits_kernel() {
  static const auto found = kernels_allowed() ? kernels().product_bfloat16 : nullptr;
  return found;
}

}  // namespace

bool host_forward(at::Tensor out, const at::Tensor& x, const at::Tensor& weight) {
  if (!suits(choice().forward, x.size(0), out, x, weight) || !wide(weight.size(0), weight.size(1))) return false;
  run_divided(choice().run, rows_of(out), true, lying(x, false), lying(weight, true), x.size(0), x.size(1),
              out.size(1));
  return true;
}

bool host_input_gradient(at::Tensor out, const at::Tensor& dy, const at::Tensor& weight) {
  if (!suits(choice().input_gradient, dy.size(0), out, dy, weight) || !wide(weight.size(0), weight.size(1)))
    return false;
  run_divided(choice().run, rows_of(out), true, lying(dy, false), lying(weight, false), dy.size(0), dy.size(1),
              out.size(1));
  return true;
}

bool has_host_product() {
  return gemm() != nullptr || bits_kernel() != nullptr;
}

void host_product(float* out, std::int64_t distance, bool fresh, const Lying<Bits>& a, const Lying<Bits>& b,
                  std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  if (gemm() == nullptr) {
    run_divided(bits_kernel(), {out, distance}, fresh, a, b, rows, inner, columns);
    return;
  }
  const auto whole = [](std::int64_t number) { return static_cast<int>(number); };
  gemm()(kRowsFirst, a.turned ? kTransposed : kAsItLies, b.turned ? kTransposed : kAsItLies, whole(rows),
         whole(columns), whole(inner), 1, a.data, whole(a.distance), b.data, whole(b.distance), fresh ? 0.0F : 1.0F,
         out, whole(distance));
}

bool host_product(at::Tensor out, bool fresh, const at::Tensor& a, const at::Tensor& b) {
  if (suits(choice().weight_gradient, a.size(0), out, a, b) && wide(out.size(0), out.size(1))) {
    run_divided(choice().run, rows_of(out), fresh, lying(a, true), lying(b, false), out.size(0), a.size(0),
                out.size(1));
    return true;
  }
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
