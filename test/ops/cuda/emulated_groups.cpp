#include "ops/cuda/emulated_groups.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>

namespace automodel::ops {
namespace {

std::atomic<int> products = 0;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("grouped product: " + what);
}

/// Checks the kernels' requirements on an operand's address and strides: those of LibTorch's
/// check_valid_strides_and_return_transposed, and those of the Tensor Memory Accelerator on the matrices of the groups.
/// Returns whether rows are contiguous.
bool row_major(const at::Tensor& x, const std::string& name) {
  expect(x.scalar_type() == at::kBFloat16, name + " is not bfloat16");
  expect(reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0, "the address of " + name);
  expect(x.dim() == 2 || (x.dim() == 3 && x.stride(0) % 8 == 0), "the distance of groups of " + name);
  const auto rows = x.size(-2), columns = x.size(-1);
  if (x.stride(-2) == 1 && x.stride(-1) >= std::max<std::int64_t>(1, rows)) {
    expect(x.stride(-1) % 8 == 0, "a stride of " + name + " is no multiple of 8");
    return false;
  }
  expect(x.stride(-1) == 1 && x.stride(-2) >= std::max<std::int64_t>(1, columns), "the strides of " + name);
  expect(x.stride(-2) % 8 == 0, "a stride of " + name + " is no multiple of 8");
  return true;
}

at::Tensor product_of_groups(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  ++products;
  expect(ends.scalar_type() == at::kInt && ends.dim() == 1 && ends.is_contiguous(), "the ends must be a row of int32");
  const auto groups = ends.size(0);
  expect(groups > 0 && groups < 1024, "the number of groups");
  expect(a.dim() == 2 && (b.dim() == 2 || b.dim() == 3), "the dimensions");
  const bool a_rows = row_major(a, "a"), b_rows = row_major(b, "b");
  const bool inside = b.dim() == 2;  // the groups divide the dimension that is summed over
  const auto n = a.size(inside ? 1 : 0);
  expect(n > 0, "no rows");
  expect(inside ? b.size(0) == n : b.size(0) == groups && b.size(1) == a.size(1), "the sizes");
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto doubles = at::TensorOptions().dtype(at::kDouble);
  const auto out =
      inside ? at::full({groups, a.size(0), b.size(1)}, kNone, doubles) : at::full({n, b.size(2)}, kNone, doubles);
  const auto* end = ends.const_data_ptr<std::int32_t>();
  std::int64_t first = 0;
  for (std::int64_t g = 0; g < groups; first = end[g++]) {
    const auto count = end[g] - first;
    expect(count >= 0 && end[g] <= n, "the ends of groups");
    // Each group must begin at a multiple of 16 bytes, so the sizes of groups that divide a contiguous dimension are
    // multiples of 8 elements.
    const bool divided = inside ? a_rows || !b_rows : !a_rows;
    expect(!divided || g + 1 == groups || count % 8 == 0, "a group begins inside 16 bytes");
    if (count == 0) continue;
    if (inside)
      out.select(0, g).copy_(
          at::matmul(a.narrow(1, first, count).to(at::kDouble), b.narrow(0, first, count).to(at::kDouble)));
    else
      out.narrow(0, first, count)
          .copy_(at::matmul(a.narrow(0, first, count).to(at::kDouble), b.select(0, g).to(at::kDouble)));
  }
  expect(first == n, "rows behind the last group, whose results are undefined");
  return out.to(at::kBFloat16);
}

}  // namespace

GroupedProduct emulated_groups() {
  return product_of_groups;
}

int grouped_calls() {
  return products;
}

}  // namespace automodel::ops
