// Line charts as HTML and inline SVG, for any number of points.
#pragma once

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

/// Round numbers that span [low, high], at most `most` of them, ascending.
std::vector<double> ticks(double low, double high, int most);

struct Series {
  std::string name = {};
  int color = 0;  ///< index of the run
  const Column* column = nullptr;
  bool points = false;  ///< draw dots instead of a line
};

struct Mark {
  std::int64_t step = 0;
  std::string text = {};
};

struct Chart {
  std::string key = {};    ///< of the metric
  std::string title = {};  ///< including the unit
  bool logarithmic = false;
  std::vector<Series> series = {};
  std::vector<Mark> marks = {};  ///< events, as thin vertical lines
  std::size_t buckets = 500;     ///< maximum per line
};

/// Empty if no series has a finite value.
std::string to_html(const Chart& chart);

/// "1.25e-05", "12.4K", "0.31": short enough for an axis tick or a tile.
std::string short_number(double value);

}  // namespace automodel::report
