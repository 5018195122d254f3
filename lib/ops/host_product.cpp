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
  // On other makers' processors MKL takes slower code, and oneDNN, behind at::mm, is the better one.
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

/// The kernels of float32, where they were measured to be faster than LibTorch's library. ATEN_CPU_CAPABILITY takes
/// them away as it does LibTorch's own for AVX-512.
const ProductKernels& float_kernels() {
  static const ProductKernels found =
      processor().intel && at::get_cpu_capability() == "AVX512" ? kernels().product_float : ProductKernels{};
  return found;
}

/// Fewer tokens are products of vectors, for which libraries have code of their own; with more tokens the library's
/// share of time for laying out weights, or for the gradient's memory, is small. Smaller weights leave tiles empty.
constexpr std::int64_t kFewTokens = 24, kManyForward = 256, kManyBackward = 192, kSmallWeight = 64;

bool suits(std::int64_t tokens, std::int64_t most, std::int64_t rows, std::int64_t columns) {
  return tokens >= kFewTokens && tokens <= most && rows >= kSmallWeight && columns >= kSmallWeight;
}

bool float_rows(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && rows_lie(x);
}

FloatRows rows_of(const at::Tensor& x) {
  return {x.const_data_ptr<float>(), distance_of_rows(x)};
}

/// This thread's memory for a product.
float* product_room() {
  struct alignas(64) Line {
    std::array<float, 16> lanes;
  };
  thread_local const std::unique_ptr<Line[]> room(new Line[kProductRoom / 16]);
  return room[0].lanes.data();
}

/// Calls run(first, size) for parts of `whole`, each on its thread and of whole panels.
template <class Run>
void divided(std::int64_t whole, Run&& run) {
  constexpr std::int64_t kPiece = 32;
  at::parallel_for(0, (whole + kPiece - 1) / kPiece, 1, [&](std::int64_t from, std::int64_t to) {
    run(from * kPiece, std::min(whole, to * kPiece) - from * kPiece);
  });
}

bool float_product(const at::Tensor& out, bool fresh, const at::Tensor& a, const at::Tensor& b) {
  const auto run = float_kernels().weight;
  const auto tokens = a.size(0), rows = out.size(0), columns = out.size(1);
  if (run == nullptr || !suits(tokens, kManyBackward, rows, columns) || !float_rows(out) || !float_rows(a) ||
      !float_rows(b))
    return false;
  float* const to = out.mutable_data_ptr<float>();
  const auto distance = distance_of_rows(out);
  const auto left = rows_of(a), right = rows_of(b);
  divided(rows, [&](std::int64_t first, std::int64_t size) {
    run({to + first * distance, distance}, fresh, {left.data + first, left.distance}, right, size, tokens, columns,
        product_room());
  });
  return true;
}

}  // namespace

bool host_forward(at::Tensor out, const at::Tensor& x, const at::Tensor& weight) {
  const auto run = float_kernels().forward;
  const auto tokens = x.size(0), inner = x.size(1), columns = out.size(1);
  if (run == nullptr || !suits(tokens, kManyForward, columns, inner) || !float_rows(out) || !float_rows(x) ||
      !float_rows(weight))
    return false;
  float* const to = out.mutable_data_ptr<float>();
  const auto distance = distance_of_rows(out);
  const auto left = rows_of(x), right = rows_of(weight);
  divided(columns, [&](std::int64_t first, std::int64_t size) {
    run({to + first, distance}, left, {right.data + first * right.distance, right.distance}, tokens, inner, size,
        product_room());
  });
  return true;
}

bool has_host_product() {
  return gemm() != nullptr;
}

void host_product(float* out, std::int64_t distance, bool fresh, const Lying<Bits>& a, const Lying<Bits>& b,
                  std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  const auto whole = [](std::int64_t number) { return static_cast<int>(number); };
  gemm()(kRowsFirst, a.turned ? kTransposed : kAsItLies, b.turned ? kTransposed : kAsItLies, whole(rows),
         whole(columns), whole(inner), 1, a.data, whole(a.distance), b.data, whole(b.distance), fresh ? 0.0F : 1.0F,
         out, whole(distance));
}

bool host_product(at::Tensor out, bool fresh, const at::Tensor& a, const at::Tensor& b) {
  if (float_product(out, fresh, a, b)) return true;
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
