// The largest difference to allow between two results that differ only in the order of their sums: kernels for another
// CPU, another number of threads, or an equivalent expression. It follows from type, sizes and depth, not from one
// machine.
#pragma once

#include <cmath>

#include <c10/core/ScalarType.h>

namespace automodel::test {

/// Unit roundoff of a type.
inline double roundoff(at::ScalarType type) {
  return type == at::kDouble ? 0x1p-53 : type == at::kFloat ? 0x1p-24 : type == at::kHalf ? 0x1p-11 : 0x1p-8;
}

/// Largest difference to expect between two results of at most `scale`, each at the end of `depth` matmuls that sum
/// over `width` terms. Errors of a sum are random (Higham 2002, 4.2: they grow with the root of the number of terms);
/// those of successive matmuls are taken to add up, and both results have them. The factor 4 is for the largest of many
/// elements.
inline double rounding(at::ScalarType type, double scale, double width, double depth) {
  return 2 * 4 * roundoff(type) * scale * std::sqrt(width) * depth;
}

}  // namespace automodel::test
