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

class Selection final : public Rows {
 public:
  Selection(std::unique_ptr<Rows> rows, std::vector<std::int64_t> order)
      : rows_(std::move(rows)), order_(std::move(order)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(order_.size()); }
  void read(std::int64_t index, nlohmann::ordered_json& out) const override { rows_->read(at(index), out); }
  SourceLocation where(std::int64_t index) const override { return rows_->where(at(index)); }

 private:
  std::int64_t at(std::int64_t index) const { return order_[static_cast<std::size_t>(index)]; }

  std::unique_ptr<Rows> rows_;
  std::vector<std::int64_t> order_;
};

}  // namespace

std::unique_ptr<Rows> concatenate(std::vector<std::unique_ptr<Rows>> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<Concatenation>(std::move(parts));
}

std::unique_ptr<Rows> select(std::unique_ptr<Rows> rows, std::vector<std::int64_t> order) {
  return std::make_unique<Selection>(std::move(rows), std::move(order));
}

}  // namespace automodel::rows
