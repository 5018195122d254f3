#include "ops/flash_attention.h"

#include <optional>

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>

namespace automodel::ops {
namespace {

std::optional<at::Tensor> present(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}
std::optional<std::int64_t> end_of(std::int64_t window) {
  return window < 0 ? std::nullopt : std::optional(window);
}
/// Causal attention without a window is selected by a flag of its own in the call.
bool causal(const FlashCall& call) {
  return call.left < 0 && call.right == 0;
}

std::pair<at::Tensor, at::Tensor> flash_forward(const FlashCall& call) {
  auto results = at::_flash_attention_forward(
      call.q, call.k, call.v, present(call.starts), present(call.starts), call.queries, call.keys, /*dropout_p=*/0.0,
      causal(call), /*return_debug_mask=*/false, call.scale, end_of(call.left), end_of(call.right));
  return {std::get<0>(results), std::get<1>(results)};
}

std::array<at::Tensor, 3> flash_backward(const at::Tensor& gradient, const FlashCall& call, const at::Tensor& out,
                                         const at::Tensor& logsum) {
  // Without dropout the random-number state is not read.
  const at::Tensor no_state;
  auto [dq, dk, dv] = at::_flash_attention_backward(
      gradient, call.q, call.k, call.v, out, logsum, call.starts, call.starts, call.queries, call.keys,
      /*dropout_p=*/0.0, causal(call), no_state, no_state, call.scale, end_of(call.left), end_of(call.right));
  return {dq, dk, dv};
}

const FlashKernels*& host_kernels() {
  static const FlashKernels* kernels = nullptr;
  return kernels;
}

}  // namespace

const FlashKernels* flash_kernels(const at::Tensor& x) {
  static const FlashKernels kernels{.forward = flash_forward, .backward = flash_backward};
  if (x.scalar_type() != at::kHalf && x.scalar_type() != at::kBFloat16) return nullptr;
  return x.is_cpu() ? host_kernels() : x.is_cuda() ? &kernels : nullptr;
}

void flash_on_host_with(const FlashKernels* kernels) {
  host_kernels() = kernels;
}

}  // namespace automodel::ops
