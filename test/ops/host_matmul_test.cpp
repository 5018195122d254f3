// Matmuls of bfloat16 accumulated in float32, and float32 matmuls with our own kernels, against float64.
#include "ops/host_matmul.h"

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "base/processor.h"
#include "ops/linear.h"
#include "ops/parameter.h"
#include "ops/tiled_matmul.h"
#include "torch_catch.h"

namespace automodel::ops {
namespace {

at::Tensor bfloat16s(const std::vector<std::int64_t>& sizes) {
  return at::randn(sizes).to(at::kBFloat16);
}

at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b) {
  return at::matmul(a.to(at::kDouble).t(), b.to(at::kDouble));
}

/// Products of two bfloat16 values are exact in float32, so that only sums round: n additions in any order, each by at
/// most half a unit of the partial sum, which the sum of magnitudes bounds. Twice that, since hardware may add pairs
/// before it adds them to the rest.
void require_sum(const at::Tensor& out, const at::Tensor& before, const at::Tensor& a, const at::Tensor& b) {
  const auto wide = before.to(at::kDouble);
  const auto bound = (transposed_product(a.abs(), b.abs()) + wide.abs()) *
                     (static_cast<double>(a.size(0) + 1) * std::numeric_limits<float>::epsilon());
  const auto far = (out.to(at::kDouble) - (transposed_product(a, b) + wide)).abs();
  CHECK(far.le(bound).all().item<bool>());
}

/// The median relative error of the elements; it is large if the result was rounded to bfloat16.
double typical_distance(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  const auto expected = transposed_product(a, b);
  return ((out.to(at::kDouble) - expected) / expected).abs().median().item<double>();
}

struct Size {
  std::int64_t n, rows, columns;
};
constexpr Size kSizes[] = {{1, 1, 1},    {3, 5, 7},     {17, 33, 1},     {1, 40, 3},   {31, 1, 65},
                           {64, 32, 32}, {129, 96, 47}, {200, 255, 129}, {512, 64, 96}};

Parameter weight_of(std::int64_t rows, std::int64_t columns) {
  return {.name = "w",
          .shape = {rows, columns},
          .value = at::zeros({rows, columns}, at::kBFloat16),
          .grad = at::full({rows, columns}, std::numeric_limits<double>::quiet_NaN(), at::kFloat),  // never read
          .fused_accumulation = true};
}

}  // namespace

TEST_CASE("weight gradients of bfloat16 operands are accumulated in float32", "[host matmul]") {
  at::manual_seed(1);
  for (const auto& [n, rows, columns] : kSizes) {
    INFO(n << " x " << rows << " x " << columns);
    auto w = weight_of(rows, columns);
    const auto dy = bfloat16s({n, rows}), x = bfloat16s({n, columns});
    accumulate_product({&w}, dy, x);
    require_sum(w.grad, at::zeros({rows, columns}), dy, x);
    if (n * rows * columns > 1000) CHECK(typical_distance(w.grad, dy, x) < 1e-5);  // 1e-3 if rounded to bfloat16
    const auto before = w.grad.clone();
    const auto dy2 = bfloat16s({n, rows}), x2 = bfloat16s({n, columns});
    accumulate_product({&w}, dy2, x2);
    require_sum(w.grad, before, dy2, x2);
  }
}

TEST_CASE("weight gradients accept sliced, transposed, expanded, strided and empty operands", "[host matmul]") {
  at::manual_seed(2);
  const std::int64_t n = 37, rows = 24, columns = 19;
  const auto dy = bfloat16s({n, rows}), x = bfloat16s({n, columns});
  const auto run = [&](const at::Tensor& a, const at::Tensor& b) {
    auto w = weight_of(rows, columns);
    accumulate_product({&w}, a, b);
    require_sum(w.grad, at::zeros({rows, columns}), a, b);
  };
  const auto wide_a = bfloat16s({n, 3 * rows}), wide_b = bfloat16s({n, columns + 5});
  run(wide_a.narrow(1, rows, rows), wide_b.narrow(1, 4, columns));
  run(bfloat16s({rows, n}).t(), x);
  run(dy, bfloat16s({columns, n}).t());
  run(bfloat16s({rows + 3, n + 2}).narrow(0, 1, rows).narrow(1, 2, n).t(), wide_b.narrow(1, 0, columns));
  run(bfloat16s({1, rows}).expand({n, rows}), x);
  run(bfloat16s({n, 2 * rows}).slice(1, 0, 2 * rows, 2), x);

  auto w = weight_of(rows, columns);
  accumulate_product({&w}, dy.narrow(0, 0, 0), x.narrow(0, 0, 0));
  CHECK(w.grad.eq(0).all().item<bool>());
  accumulate_product({&w}, dy, x);
  const auto before = w.grad.clone();
  accumulate_product({&w}, dy.narrow(0, 0, 0), x.narrow(0, 0, 0));
  CHECK(w.grad.equal(before));
}

TEST_CASE("weight gradients of a fused layer are right in separate and in adjacent buffers", "[host matmul]") {
  at::manual_seed(3);
  const std::int64_t n = 50, columns = 32;
  const auto dy = bfloat16s({n, 40}), x = bfloat16s({n, columns});
  for (const bool together : {true, false}) {
    const auto flat = at::full({40 * columns}, 7.0, at::kFloat);
    auto a = weight_of(24, columns), b = weight_of(16, columns);
    if (together) {
      a.grad = flat.narrow(0, 0, 24 * columns).view({24, columns});
      b.grad = flat.narrow(0, 24 * columns, 16 * columns).view({16, columns});
    }
    accumulate_product({&a, &b}, dy, x);
    require_sum(a.grad, at::zeros({24, columns}), dy.narrow(1, 0, 24), x);
    require_sum(b.grad, at::zeros({16, columns}), dy.narrow(1, 24, 16), x);
  }
}

TEST_CASE("gradients of stacked expert weights are right, and zero for experts without rows", "[host matmul]") {
  at::manual_seed(4);
  const std::vector<std::int64_t> rows = {9, 0, 21, 1};
  Parameter stack{.name = "w",
                  .shape = {4, 12, 20},
                  .value = at::zeros({4, 12, 20}, at::kBFloat16),
                  .grad = at::full({4, 12, 20}, 5.0, at::kFloat),
                  .fused_accumulation = true};
  const auto x = bfloat16s({31, 12}), dy = bfloat16s({31, 20});
  accumulate_stacked(stack, x, dy, rows);
  std::int64_t first = 0;
  for (std::int64_t g = 0; g < 4; ++g) {
    const auto count = rows[static_cast<std::size_t>(g)];
    if (count == 0)
      CHECK(stack.grad.select(0, g).eq(0).all().item<bool>());
    else
      require_sum(stack.grad.select(0, g), at::zeros({12, 20}), x.narrow(0, first, count), dy.narrow(0, first, count));
    first += count;
  }
}

TEST_CASE("host_matmul refuses unsupported operands and writes only its output", "[host matmul]") {
  at::manual_seed(5);
  const auto a = bfloat16s({33, 10}), b = bfloat16s({33, 14});
  const auto around = at::full({14, 20}, 3.0, at::kFloat);
  const auto out = around.narrow(0, 2, 10).narrow(1, 3, 14);
  const bool done = host_matmul(out, true, a, b);
  CHECK(done == has_host_matmul());
  if (done) {
    require_sum(out, at::zeros({10, 14}), a, b);
    out.fill_(3.0);
  }
  CHECK(around.eq(3.0).all().item<bool>());
  CHECK_FALSE(host_matmul(out, true, a.to(at::kFloat), b.to(at::kFloat)));
  CHECK_FALSE(host_matmul(out.to(at::kDouble), true, a, b));
  CHECK_FALSE(host_matmul(at::zeros({14, 10}).t(), true, a, b));
}

namespace {

Parameter float_weight(std::int64_t rows, std::int64_t columns) {
  return {.name = "w",
          .shape = {rows, columns},
          .value = at::randn({rows, columns}),
          .grad = at::full({rows, columns}, std::numeric_limits<double>::quiet_NaN())};
}

/// Products of two floats are fused with their addition or rounded once before it.
void require_float_sum(const at::Tensor& out, const at::Tensor& before, const at::Tensor& a, const at::Tensor& b) {
  const auto wide = before.to(at::kDouble);
  const auto bound = (transposed_product(a.abs(), b.abs()) + wide.abs()) *
                     (static_cast<double>(a.size(0) + 2) * std::numeric_limits<float>::epsilon());
  CHECK((out.to(at::kDouble) - (transposed_product(a, b) + wide)).abs().le(bound).all().item<bool>());
}

/// Tokens, inputs, outputs: on both sides of the size limits of our kernels, with incomplete blocks of every kind,
/// inner dimensions in several parts and operands larger than the kernels' buffers.
constexpr Size kFloatSizes[] = {{1, 31, 45},    {7, 5, 3},        {3, 70, 90},    {23, 64, 64},
                                {24, 64, 64},   {33, 63, 64},     {29, 65, 79},   {128, 256, 96},
                                {57, 1030, 81}, {200, 1024, 131}, {40, 2101, 64}, {256, 600, 301},
                                {257, 87, 97},  {192, 701, 99},   {193, 66, 70},  {130, 129, 1000}};

}  // namespace

TEST_CASE("float32 linear layers match float64 matmuls within the rounding error", "[host matmul]") {
  at::manual_seed(6);
  for (const auto& [n, inputs, outputs] : kFloatSizes) {
    INFO(n << " x " << inputs << " x " << outputs);
    auto w = float_weight(outputs, inputs);
    const Linear layer{.weights = {&w}};
    const auto x = at::randn({n, inputs}), dy = at::randn({n, outputs});
    // The output is part of a larger matrix, the rest of which must not change.
    auto around = at::full({n, outputs + 40}, 7.0);
    product_into(around.narrow(1, 3, outputs), x, layer);
    require_float_sum(around.narrow(1, 3, outputs), at::zeros({n, outputs}), x.t(), w.value.t());
    CHECK(around.narrow(1, 0, 3).eq(7).all().item<bool>());
    CHECK(around.narrow(1, outputs + 3, 37).eq(7).all().item<bool>());
    auto dx = input_gradient(dy, layer);
    require_float_sum(dx, at::zeros({n, inputs}), dy.t(), w.value);
    w.value.neg_();  // an optimizer's step
    require_float_sum(product(x, layer), at::zeros({n, outputs}), x.t(), w.value.t());
    accumulate_product({&w}, dy, x);
    require_float_sum(w.grad, at::zeros({outputs, inputs}), dy, x);
    const auto before = w.grad.clone();
    accumulate_product({&w}, x.narrow(1, 0, 1).expand({n, outputs}), x);  // an expanded operand
    require_float_sum(w.grad, before, x.narrow(1, 0, 1).expand({n, outputs}), x);
  }
}

TEST_CASE("bfloat16 linear layers round each sum once", "[host matmul]") {
  at::manual_seed(9);
  for (const auto& [n, inputs, outputs] : kFloatSizes) {
    INFO(n << " x " << inputs << " x " << outputs);
    auto w = weight_of(outputs, inputs);
    w.value = bfloat16s({outputs, inputs});
    const Linear layer{.weights = {&w}};
    const auto x = bfloat16s({n, inputs}), dy = bfloat16s({n, outputs});
    const auto require_rounded = [](const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
      const auto exact = transposed_product(a, b);
      const auto summed = transposed_product(a.abs(), b.abs()) *
                          (static_cast<double>(a.size(0) + 2) * std::numeric_limits<float>::epsilon());
      CHECK((out.to(at::kDouble) - exact).abs().le(exact.abs() / 256 + summed * 2).all().item<bool>());
    };
    auto around = at::full({n, outputs + 40}, 7.0, at::kBFloat16);
    product_into(around.narrow(1, 3, outputs), x, layer);
    require_rounded(around.narrow(1, 3, outputs), x.t(), w.value.t());
    CHECK(around.narrow(1, 0, 3).eq(7).all().item<bool>());
    CHECK(around.narrow(1, outputs + 3, 37).eq(7).all().item<bool>());
    require_rounded(input_gradient(dy, layer), dy.t(), w.value);
  }
}

namespace {

bool all_are(double value, const at::Tensor& x) {
  return x.eq(value).all().item<bool>();
}

/// Every operand layout, with odd sizes, incomplete blocks and several parts of the inner dimension.
template <class T>
void check_layouts(at::ScalarType type) {
  if (!has_host_matmul<T>() && !has_tiles<T>()) return;
  const auto run = [](float* out, std::int64_t stride, bool fresh, const MatrixView<T>& a, const MatrixView<T>& b,
                      std::int64_t rows, std::int64_t inner, std::int64_t columns) {
    if (has_tiles<T>())  // whatever this processor's choice is
      tiled_matmul(OutputMatrix<float>{out, stride}, fresh, a, b, rows, inner, columns);
    else
      host_matmul(out, stride, fresh, a, b, rows, inner, columns);
  };
  at::manual_seed(10);
  for (const auto& [rows, inner, columns] :
       {Size{1, 1, 1}, Size{3, 2, 5}, Size{14, 33, 32}, Size{15, 7, 33}, Size{40, 32, 70}, Size{129, 65, 47},
        Size{31, 4500, 35}, Size{500, 900, 9}})
    for (const bool transposed_a : {false, true})
      for (const bool transposed_b : {false, true}) {
        CAPTURE(rows, inner, columns, transposed_a, transposed_b);
        const auto laid = [&](std::int64_t first, std::int64_t second, bool transposed) -> at::Tensor {
          return at::randn(transposed ? std::vector{second, first + 3} : std::vector{first, second + 3}).to(type);
        };
        const at::Tensor a = laid(rows, inner, transposed_a), b = laid(inner, columns, transposed_b);
        const auto operand = [](const at::Tensor& x, bool transposed) {
          return MatrixView<T>{x.const_data_ptr<T>(), x.size(1), transposed};
        };
        const auto upright = [](const at::Tensor& x, bool transposed, std::int64_t first, std::int64_t second) {
          return (transposed ? x.t() : x).narrow(0, 0, first).narrow(1, 0, second);
        };
        const auto left = upright(a, transposed_a, rows, inner), right = upright(b, transposed_b, inner, columns);
        at::Tensor around = at::full({rows, columns + 20}, 2.0, at::kFloat);
        for (const bool fresh : {false, true}) {
          run(around.mutable_data_ptr<float>() + 1, columns + 20, fresh, operand(a, transposed_a),
              operand(b, transposed_b), rows, inner, columns);
          const auto before = at::full({rows, columns}, fresh ? 0.0 : 2.0, at::kFloat);
          require_float_sum(around.narrow(1, 1, columns), before, left.t(), right);
        }
        CHECK(all_are(2, around.narrow(1, 0, 1)));
        CHECK(all_are(2, around.narrow(1, columns + 1, 19)));
      }
}

}  // namespace

TEST_CASE("host_matmul accumulates correctly for every operand layout", "[host matmul]") {
  check_layouts<float>(at::kFloat);
  check_layouts<c10::BFloat16>(at::kBFloat16);
}

// lib/ops/kernels/dispatch_x86.cpp, dispatch_arm.cpp
#ifdef __aarch64__
namespace neon {
MatmulKernels<c10::BFloat16> bfloat16_matmuls();
}
namespace neon_bfloat16 {
MatmulKernels<c10::BFloat16> bfloat16_matmuls();
}
#else
namespace avx2 {
MatmulKernels<float> float_matmuls();
MatmulKernels<c10::BFloat16> bfloat16_matmuls();
}  // namespace avx2
#endif

namespace {

/// One GEMM of a table of kernels, whichever this processor's choice is: `a` packed, or `b`.
template <class T>
void check_table(const MatmulKernels<T>& by, at::ScalarType type, const Size& size, bool transposed, bool packs_rows) {
  const auto& [rows, inner, columns] = size;
  CAPTURE(type, rows, inner, columns, transposed, packs_rows);
  const at::Tensor a = at::randn(transposed ? std::vector{inner, rows} : std::vector{rows, inner}).to(type);
  const at::Tensor b = at::randn(transposed ? std::vector{columns, inner} : std::vector{inner, columns}).to(type);
  const MatrixView<T> left{a.const_data_ptr<T>(), a.size(1), transposed},
      right{b.const_data_ptr<T>(), b.size(1), transposed};
  const auto blocks = (rows + by.block - 1) / by.block, panels = (columns + by.panel - 1) / by.panel;
  const auto memory = [](std::int64_t floats) { return at::empty({floats}, at::kFloat); };  // aligned to 64 bytes
  at::Tensor of_rows = memory(blocks * by.room(inner)), of_columns = memory(panels * by.panel * inner);
  at::Tensor out = at::full({rows, columns + 4}, 2.0, at::kFloat);
  const OutputMatrix<float> to{out.mutable_data_ptr<float>(), columns + 4};
  if (packs_rows) {
    by.pack_rows(left, rows, inner, 0, blocks, of_rows.mutable_data_ptr<float>());
    by.sum.stream_columns(to, false, of_rows.const_data_ptr<float>(), right, rows, inner, columns,
                          of_columns.mutable_data_ptr<float>());
  } else {
    by.pack_columns(right, columns, inner, 0, panels, of_columns.mutable_data_ptr<float>());
    by.sum.stream_rows(to, false, left, of_columns.const_data_ptr<float>(), rows, inner, columns,
                       of_rows.mutable_data_ptr<float>());
  }
  require_float_sum(out.narrow(1, 0, columns), at::full({rows, columns}, 2.0, at::kFloat), transposed ? a : a.t(),
                    transposed ? b.t() : b);
  CHECK(all_are(2, out.narrow(1, columns, 4)));
}

}  // namespace

TEST_CASE("tiles multiply on every processor that has their instructions", "[host matmul]") {
#ifndef __aarch64__
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
#endif
  at::manual_seed(12);
  for (const auto& size : {Size{1, 1, 1}, Size{3, 2, 5}, Size{6, 33, 16}, Size{7, 9, 17}, Size{40, 32, 70},
                           Size{129, 65, 47}, Size{31, 900, 35}, Size{200, 1024, 90}})
    for (const bool transposed : {false, true})
      for (const bool packs_rows : {false, true}) {
#ifdef __aarch64__
        check_table(neon::bfloat16_matmuls(), at::kBFloat16, size, transposed, packs_rows);
        if (processor().bfloat16 == BFloat16Unit::kArm)
          check_table(neon_bfloat16::bfloat16_matmuls(), at::kBFloat16, size, transposed, packs_rows);
#else
        check_table(avx2::float_matmuls(), at::kFloat, size, transposed, packs_rows);
        check_table(avx2::bfloat16_matmuls(), at::kBFloat16, size, transposed, packs_rows);
#endif
      }
}

TEST_CASE("float32 operands and gradients may be slices of larger matrices", "[host matmul]") {
  at::manual_seed(7);
  const std::int64_t n = 75, rows = 90, columns = 110;
  const auto dy = at::randn({n, 3 * rows}).narrow(1, rows, rows), x = at::randn({n, columns + 9}).narrow(1, 5, columns);
  auto around = at::full({rows + 2, columns + 50}, 3.0);
  auto w = float_weight(rows, columns);
  w.grad = around.narrow(0, 1, rows).narrow(1, 2, columns);
  accumulate_product({&w}, dy, x);
  require_float_sum(w.grad, at::zeros({rows, columns}), dy, x);
  accumulate_product({&w}, at::randn({rows, n}).t().mul(0), at::randn({columns, n}).t());
  require_float_sum(w.grad, at::zeros({rows, columns}), dy, x);
  w.grad.fill_(3);
  CHECK(around.eq(3).all().item<bool>());
  w.value = at::randn({rows, columns + 4}).narrow(1, 2, columns);
  require_float_sum(product(x, Linear{.weights = {&w}}), at::zeros({n, rows}), x.t(), w.value.t());
}

namespace {

/// a b, or a^T b, by tiles.
template <class T>
at::Tensor tiled(const at::Tensor& a, const at::Tensor& b, bool transposed) {
  const auto rows = a.size(transposed ? 1 : 0), inner = a.size(transposed ? 0 : 1), columns = b.size(1);
  auto out = at::full({rows, columns}, 0.5, at::kFloat);
  tiled_matmul(OutputMatrix<float>{out.mutable_data_ptr<float>(), columns}, false,
               MatrixView<T>{a.const_data_ptr<T>(), a.stride(0), transposed},
               MatrixView<T>{b.const_data_ptr<T>(), b.stride(0)}, rows, inner, columns);
  return out;
}

/// With operands larger than what threads pack together (2,044 rows, 2,048 columns at this depth) and than what each
/// packs for itself (1,024 columns, 1,008 rows), for any number of threads.
template <class T>
void check_slices(at::ScalarType type, bool transposed) {
  if (!has_tiles<T>()) return;
  at::manual_seed(11);
  constexpr std::int64_t kInner = 1024 * sizeof(float) / sizeof(T), kRows = 2060, kColumns = 2090;
  const auto a = at::randn(transposed ? std::vector{kInner, kRows} : std::vector{kRows, kInner}).to(type);
  const auto b = at::randn({kInner, kColumns}).to(type);
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto whole = tiled<T>(a, b, transposed);
  for (const auto& [row, rows, column, columns] :
       {std::array<std::int64_t, 4>{0, 31, 1000, 70}, {990, 45, 2030, 60}, {2030, 30, 0, 40}, {1, 500, 700, 350}}) {
    CAPTURE(transposed, row, rows, column, columns);
    const auto part = tiled<T>(a.narrow(transposed ? 1 : 0, row, rows), b.narrow(1, column, columns), transposed);
    CHECK(part.equal(whole.narrow(0, row, rows).narrow(1, column, columns)));
  }
  for (const int count : {2, 3}) {
    at::set_num_threads(count);
    CHECK(tiled<T>(a, b, transposed).equal(whole));
  }
  at::set_num_threads(threads);
}

}  // namespace

TEST_CASE("tiles give the same bits for slices of a matmul and any thread count", "[host matmul]") {
  for (const bool transposed : {false, true}) {
    check_slices<float>(at::kFloat, transposed);
    check_slices<c10::BFloat16>(at::kBFloat16, transposed);
  }
}

}  // namespace automodel::ops
