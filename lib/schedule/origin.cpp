#include "schedule/origin.h"

#include <algorithm>

namespace automodel::schedule {

Origin::Origin(std::string file, std::string text) : file_(std::move(file)), text_(std::move(text)) {
  for (std::size_t begin = 0; begin < text_.size();) {
    line_begin_.push_back(begin);
    const std::size_t end = text_.find('\n', begin);
    if (end == std::string::npos) break;
    begin = end + 1;
  }
}

SourceLocation Origin::row(std::size_t rank) const {
  if (rank >= line_begin_.size()) return whole();
  return {file_, static_cast<int>(rank) + 1, 1};
}

SourceLocation Origin::cell(std::size_t rank, std::size_t step) const {
  if (rank >= line_begin_.size()) return whole();
  const std::size_t begin = line_begin_[rank];
  const std::size_t end = std::min(text_.find('\n', begin), text_.size());
  std::size_t at = begin;
  for (std::size_t i = 0; i < step; ++i) {
    const std::size_t comma = text_.find(',', at);
    if (comma == std::string::npos || comma >= end) break;
    at = comma + 1;
  }
  while (at < end && (text_[at] == ' ' || text_[at] == '\t')) ++at;
  return {file_, static_cast<int>(rank) + 1, static_cast<int>(at - begin) + 1};
}

}  // namespace automodel::schedule
