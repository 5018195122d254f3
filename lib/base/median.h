// The middle of some numbers.
#pragma once

#include <algorithm>
#include <vector>

namespace automodel {

/// The mean of the two in the middle where their number is even; there is at least one.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace automodel
