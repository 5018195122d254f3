// Unusable rows: skipped up to a limit, an error beyond it.
#pragma once

#include <cstdint>
#include <string>

#include "base/diagnostic.h"

namespace automodel::data {

class BadRows {
 public:
  /// `key` is the section's recipe key. If `quiet`, skipped rows are not reported (another rank reports them).
  BadRows(std::int64_t allowed, std::string key, bool quiet) : allowed_(allowed), key_(std::move(key)), quiet_(quiet) {}

  /// Counts a row; `problem` includes file and line.
  void add(Diagnostic problem);
  std::int64_t count() const { return count_; }
  /// The number of rows in all. If none of them can be used, for one reason, finish() gives it once.
  void expect(std::int64_t rows) { rows_ = rows; }
  /// If the limit is exceeded, adds the first rows to `problems` with a count of the rest and returns false. Otherwise
  /// logs them as warnings.
  bool finish(Diagnostics& problems);
  /// ", 3 bad rows left out", or "".
  std::string summary() const;

 private:
  std::int64_t allowed_;
  std::string key_;
  bool quiet_;
  std::int64_t count_ = 0, rows_ = 0;
  Diagnostics first_;
};

}  // namespace automodel::data
