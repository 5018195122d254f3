// Which part of a mixture gives which row: by weights, without random numbers.
//
// Row i of part p (counting from 0) may come at position floor(i / w) and must have come before ceil((i + 1) / w),
// where w is the part's share of all rows. Such windows can always be met, and taking the part with the earliest
// deadline meets them (Liu and Layland, "Scheduling algorithms for multiprogramming in a hard-real-time environment",
// 1973; unit jobs on one machine). So after n positions each part has given n * w rows, to within one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace automodel::data {

class Interleaving {
 public:
  /// Weights are positive and finite; only their ratios count.
  explicit Interleaving(const std::vector<double>& weights);

  struct Draw {
    std::size_t part;
    std::int64_t count;  ///< rows that the part has given before
  };
  /// The row at a position, from 0 without end. Thread-safe. Positions are computed from the first on and remembered
  /// once in 1,024, so that a distant one takes about 1 ns per part and position before it, the first time.
  Draw at(std::int64_t position) const;
  /// Weights that sum to 1.
  const std::vector<double>& shares() const { return shares_; }

 private:
  using Counts = std::vector<std::int64_t>;
  std::size_t next(std::int64_t position, const Counts& counts) const;
  void fill(std::int64_t block) const;

  std::vector<double> shares_;
  mutable std::mutex mutex_ = {};
  mutable std::vector<std::int64_t> starts_ = {};  ///< by block and part: rows given before the block
  mutable std::int64_t block_ = -1;                ///< the block whose draws are kept
  mutable std::vector<Draw> draws_ = {};
};

}  // namespace automodel::data
