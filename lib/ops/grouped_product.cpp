#include "ops/grouped_product.h"

#include <cstdint>

#include <ATen/ops/_grouped_mm.h>

#include "ops/kernels/device.h"

namespace automodel::ops {
namespace {

GroupedProduct& product_on_host() {
  static GroupedProduct product = nullptr;
  return product;
}

at::Tensor device_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  return at::_grouped_mm(a, b, ends);
}

}  // namespace

GroupedProduct grouped_product(const at::Tensor& x) {
  // For other types at::_grouped_mm is a loop over groups that synchronises with the GPU.
  if (x.scalar_type() != at::kBFloat16) return nullptr;
  if (x.is_cpu()) return product_on_host();
  const auto* device = device_kernels(x);
  return device != nullptr && device->has_grouped_product != nullptr && device->has_grouped_product() ? device_product
                                                                                                      : nullptr;
}

bool takes_groups(std::int64_t groups) {
  return groups < 1024;
}

bool is_readable_in_place(const at::Tensor& x) {
  constexpr std::int64_t kBytes = 16;
  const std::int64_t elements = kBytes / static_cast<std::int64_t>(x.element_size());
  if (reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % kBytes != 0) return false;
  if (x.dim() == 3 && x.stride(0) % elements != 0) return false;
  const auto rows = x.stride(-2), columns = x.stride(-1);
  return (columns == 1 && rows % elements == 0 && rows >= x.size(-1)) ||
         (rows == 1 && columns % elements == 0 && columns >= x.size(-2));
}

void grouped_product_on_host_with(GroupedProduct product) {
  product_on_host() = product;
}

}  // namespace automodel::ops
