#include "rows/rows.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace automodel::rows {
namespace {

class Concatenation final : public Rows {
 public:
  explicit Concatenation(std::vector<std::unique_ptr<Rows>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part->size());
  }
  std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  void read(std::int64_t index, nlohmann::ordered_json& out) const override {
    const auto [part, row] = find(index);
    part->read(row, out);
  }
  std::string bytes(std::int64_t index, std::int64_t cell) const override {
    const auto [part, row] = find(index);
    return part->bytes(row, cell);
  }
  SourceLocation where(std::int64_t index) const override {
    const auto [part, row] = find(index);
    return part->where(row);
  }

 private:
  std::pair<const Rows*, std::int64_t> find(std::int64_t index) const {
    const auto at = std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
    const auto part = static_cast<std::size_t>(at);
    return {parts_[part].get(), index - (part == 0 ? 0 : ends_[part - 1])};
  }

  std::vector<std::unique_ptr<Rows>> parts_;
  std::vector<std::int64_t> ends_;
};

/// Spans, not a list of indices: a table's metadata says how many rows it has, and may say anything.
class Selection final : public Rows {
 public:
  Selection(std::unique_ptr<Rows> rows, std::vector<RowSpan> spans) : rows_(std::move(rows)), spans_(std::move(spans)) {
    for (const auto& span : spans_) ends_.push_back(size() + span.to - span.from);
  }
  std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  void read(std::int64_t index, nlohmann::ordered_json& out) const override { rows_->read(at(index), out); }
  std::string bytes(std::int64_t index, std::int64_t cell) const override { return rows_->bytes(at(index), cell); }
  SourceLocation where(std::int64_t index) const override { return rows_->where(at(index)); }

 private:
  std::int64_t at(std::int64_t index) const {
    const auto span = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    return spans_[span].to - (ends_[span] - index);
  }

  std::unique_ptr<Rows> rows_;
  std::vector<RowSpan> spans_;
  std::vector<std::int64_t> ends_;  ///< rows up to the end of each span
};

}  // namespace

std::string Rows::bytes(std::int64_t index, std::int64_t /*cell*/) const {
  throw RowError("rows of text hold no bytes", where(index));
}

std::unique_ptr<Rows> concatenate(std::vector<std::unique_ptr<Rows>> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<Concatenation>(std::move(parts));
}

std::unique_ptr<Rows> select(std::unique_ptr<Rows> rows, std::vector<RowSpan> spans) {
  return std::make_unique<Selection>(std::move(rows), std::move(spans));
}

std::unique_ptr<Rows> select(std::unique_ptr<Rows> rows, const std::vector<std::int64_t>& order) {
  std::vector<RowSpan> spans;
  for (const std::int64_t row : order) {
    if (!spans.empty() && spans.back().to == row)
      ++spans.back().to;
    else
      spans.push_back({row, row + 1});
  }
  return select(std::move(rows), std::move(spans));
}

}  // namespace automodel::rows
