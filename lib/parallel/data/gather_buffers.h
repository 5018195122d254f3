// Two buffers, allocated once, into which units of equal size are gathered alternately.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace automodel::parallel {

/// While one unit computes from one buffer, the next is gathered into the other.
class GatherBuffers {
 public:
  GatherBuffers(std::int64_t elements, at::TensorOptions options) : elements_(elements), options_(options) {}

  /// A free buffer; undefined if both are taken.
  at::Tensor take();
  void give_back(const at::Tensor& buffer);
  /// Bytes of the free buffers.
  std::int64_t free_bytes() const;

 private:
  struct Slot {
    at::Tensor buffer = {};  ///< allocated on first use
    bool taken = false;
  };
  std::int64_t elements_;
  at::TensorOptions options_;
  std::array<Slot, 2> slots_ = {};
};

}  // namespace automodel::parallel
