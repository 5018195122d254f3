// Shapes of parameters and activations, without a tensor library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/error.h"

namespace automodel::arch {

/// Up to five dimensions, row-major, slowest first.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) {
    AUTOMODEL_CHECK(dims.size() <= dims_.size(), "a shape has at most five dimensions");
    for (const std::int64_t dim : dims) dims_[rank_++] = dim;
  }
  std::size_t rank() const { return rank_; }
  std::int64_t operator[](std::size_t dim) const { return dims_[dim]; }
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + rank_; }
  /// Product of the dimensions; 1 for a scalar.
  std::int64_t elements() const {
    std::int64_t out = 1;
    for (const std::int64_t dim : *this) out *= dim;
    return out;
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, 5> dims_ = {};
  std::size_t rank_ = 0;
};

/// "[4096, 128256]".
inline std::string to_text(const Shape& shape) {
  std::string out = "[";
  for (const std::int64_t dim : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(dim);
  return out + "]";
}

}  // namespace automodel::arch
