// Tensors of another device, seen from the host.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace automodel::comm {

/// The host buffers of one operation. A host tensor stands for itself; one of another device gets a buffer in pinned
/// host memory, filled when the operation starts and copied back when it has been waited for. Several ranks can share
/// a GPU this way. All copies are ATen's, so nothing here knows which device it is.
class Staging {
 public:
  /// `always`: use buffers for host tensors too (for tests).
  explicit Staging(bool always) : always_(always) {}

  /// Host memory with the values of `tensor`. Waits for what the current stream computes into it.
  at::Tensor read(const at::Tensor& tensor);
  /// Host memory for what `tensor` is to become; its values are unspecified until then.
  at::Tensor write(const at::Tensor& tensor);
  /// Host memory with the values of `tensor`, which is to change.
  at::Tensor update(const at::Tensor& tensor);

  /// Copies everything received to its tensors, on the current stream. Does nothing a second time.
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
