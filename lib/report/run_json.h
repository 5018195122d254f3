// A run for the pages that show it (page/run.js).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/run_files.h"

namespace automodel::report {

/// Consecutive steps that fall on the same pixels: even a hundred thousand steps are reduced to the width of the chart
/// without losing a peak.
struct Bucket {
  std::int64_t first = 0, last = 0;  ///< steps
  double low = 0, mean = 0, high = 0;
  int count = 0;
};

/// At most `most` buckets, in order; non-finite values are skipped.
std::vector<Bucket> buckets_of(const Column& column, std::size_t most);

/// One JSON object. A bucket is [first, last, low, mean, high].
std::string to_json(const RunFiles& run);

}  // namespace automodel::report
