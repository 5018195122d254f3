#include "comm/staging.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace automodel::comm {
namespace {

/// A contiguous host tensor shaped like `tensor`, pinned so that its device can copy at full speed.
at::Tensor host_buffer(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(),
                   tensor.options().device(at::kCPU).pinned_memory(!tensor.is_cpu()).requires_grad(false));
}

}  // namespace

at::Tensor Staging::read(const at::Tensor& tensor) {
  if (direct(tensor)) return tensor;
  const at::NoGradGuard no_grad;
  at::Tensor host = host_buffer(tensor);
  host.copy_(tensor);  // a blocking copy: the values are complete when it returns
  return host;
}

at::Tensor Staging::write(const at::Tensor& tensor) {
  if (direct(tensor)) return tensor;
  at::Tensor host = host_buffer(tensor);
  deliveries_.push_back({host, tensor});
  return host;
}

at::Tensor Staging::update(const at::Tensor& tensor) {
  if (direct(tensor)) return tensor;
  at::Tensor host = read(tensor);
  deliveries_.push_back({host, tensor});
  return host;
}

void Staging::deliver() {
  if (deliveries_.empty()) return;
  const at::NoGradGuard no_grad;
  // The pinned-memory allocator keeps a buffer until the copies recorded on it are done.
  for (const Delivery& delivery : deliveries_) delivery.target.copy_(delivery.host, /*non_blocking=*/true);
  deliveries_.clear();
}

}  // namespace automodel::comm
