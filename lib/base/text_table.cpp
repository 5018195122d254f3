#include "base/text_table.h"

#include <algorithm>
#include <cctype>

namespace automodel {

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

TextTable::TextTable(std::vector<std::string> header) : header_(std::move(header)) {}

void TextTable::add(std::vector<std::string> cells) {
  cells.resize(header_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(int indent) const {
  std::vector<std::size_t> width;
  for (const auto& cell : header_) width.push_back(display_width(cell));
  std::vector<bool> numeric(header_.size(), true);
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) {
      width[i] = std::max(width[i], display_width(row[i]));
      const char first = row[i].empty() ? '0' : row[i][0];
      if (std::isdigit(static_cast<unsigned char>(first)) == 0 && first != '-' && first != '+') numeric[i] = false;
    }
  const auto line = [&](const std::vector<std::string>& row) {
    std::string out(static_cast<std::size_t>(indent), ' ');
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(width[i] - display_width(row[i]), ' ');
      out += numeric[i] ? pad + row[i] : row[i] + pad;
      out += "  ";
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  std::string out = line(header_);
  for (const auto& row : rows_) out += line(row);
  return out;
}

}  // namespace automodel
