// Where a table came from, so that a problem in one of its cells can name its place.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::schedule {

class Origin {
 public:
  /// A table without a text: made by the schedule `name`, or unnamed.
  Origin() = default;
  explicit Origin(std::string name) : file_(std::move(name)) {}
  /// A table read from `text`, line r for rank r.
  Origin(std::string file, std::string text);

  /// File, line and column of a cell (rank and step from 0), at the first character that is not blank. Without a text:
  /// the name alone.
  SourceLocation cell(std::size_t rank, std::size_t step) const;
  /// The line of a rank.
  SourceLocation row(std::size_t rank) const;
  /// The table as a whole.
  SourceLocation whole() const { return {file_, 0, 0}; }
  const std::string& text() const { return text_; }

 private:
  std::string file_ = {};
  std::string text_ = {};
  std::vector<std::size_t> line_begin_ = {};
};

}  // namespace automodel::schedule
