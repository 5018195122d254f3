// A plain-text table with aligned columns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace automodel {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  /// Adds a row; missing cells are empty. A column is right-aligned if every non-empty cell starts with a digit, '-' or
  /// '+'.
  void add(std::vector<std::string> cells);
  std::size_t rows() const { return rows_.size(); }
  /// Every line starts with `indent` spaces and ends in a line break.
  std::string text(int indent = 2) const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

/// Terminal columns of `text`: its bytes, not counting UTF-8 continuation bytes.
std::size_t display_width(const std::string& text);

}  // namespace automodel
