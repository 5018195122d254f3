// Host access to tensors on other devices.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace automodel::comm {

/// The host buffers of one operation. A host tensor is used directly; a tensor on another device gets a buffer in
/// pinned host memory, which is filled when the operation starts and copied back when it has been waited for. This way
/// several ranks can share a GPU. All copies go through ATen, so nothing here depends on the kind of device.
class Staging {
 public:
  /// `always`: stage host tensors too (for tests).
  explicit Staging(bool always) : always_(always) {}

  /// Host memory with the values of `tensor`. Waits for pending work on it in the current stream.
  at::Tensor read(const at::Tensor& tensor);
  /// Host memory whose content will replace that of `tensor`; uninitialized until then.
  at::Tensor write(const at::Tensor& tensor);
  /// Host memory with the values of `tensor`, for in-place modification.
  at::Tensor update(const at::Tensor& tensor);

  /// Copies everything received to its target tensors, on the current stream. A second call does nothing.
  void deliver();

 private:
  struct Delivery {
    at::Tensor host;
    at::Tensor target;
  };
  bool direct(const at::Tensor& tensor) const { return tensor.is_cpu() && !always_; }

  bool always_;
  std::vector<Delivery> deliveries_;
};

}  // namespace automodel::comm
