#include "data/packed_dataset.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace automodel::data {
namespace {

/// Row indices of all packs in one list, and where each pack ends in it.
struct Packs {
  std::vector<std::int64_t> rows = {};
  std::vector<std::size_t> ends = {};

  void close() {
    if (rows.size() > (ends.empty() ? 0 : ends.back())) ends.push_back(rows.size());
  }
  bool full(const config::PackedSequenceConfig& config) const {
    return config.max_packs() && ends.size() >= static_cast<std::size_t>(*config.max_packs());
  }
};

struct Row {
  std::int64_t index;
  std::int64_t length;  ///< including padding
};

/// Keeps the order of rows; a pack ends when the next row does not fit.
Packs pack_in_order(const std::vector<Row>& rows, const config::PackedSequenceConfig& config) {
  Packs out;
  std::int64_t used = 0;
  for (const auto& row : rows) {
    if (used + row.length > config.capacity()) {
      out.close();
      if (out.full(config)) return out;
      used = 0;
    }
    out.rows.push_back(row.index);
    used += row.length;
  }
  out.close();
  return out;
}

/// Longest rows first, each into the emptiest pack if it fits there, else into a new one; among equals the first.
Packs pack_evenly(std::vector<Row> rows, const config::PackedSequenceConfig& config) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.length > b.length; });
  using Filled = std::pair<std::int64_t, std::size_t>;  // tokens, pack
  std::priority_queue<Filled, std::vector<Filled>, std::greater<>> emptiest;
  std::vector<std::vector<std::int64_t>> packs;
  for (const auto& row : rows) {
    Filled pack{0, packs.size()};
    if (!emptiest.empty() && emptiest.top().first + row.length <= config.capacity()) {
      pack = emptiest.top();
      emptiest.pop();
    } else {
      packs.emplace_back();
    }
    packs[pack.second].push_back(row.index);
    emptiest.emplace(pack.first + row.length, pack.second);
  }
  Packs out;
  for (const auto& pack : packs) {
    if (out.full(config)) break;
    out.rows.insert(out.rows.end(), pack.begin(), pack.end());
    out.close();
  }
  return out;
}

class PackedDataset final : public Dataset {
 public:
  PackedDataset(std::shared_ptr<const Dataset> rows, Packs packs, std::int64_t length, std::int64_t multiple,
                std::string summary)
      : rows_(std::move(rows)),
        packs_(std::move(packs)),
        length_(length),
        multiple_(multiple),
        summary_(std::move(summary)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(packs_.ends.size()); }
  std::int64_t length(std::int64_t /*index*/) const override { return length_; }
  Padding padding() const override { return {rows_->padding().id, rows_->padding().multiple, length_}; }
  std::string summary() const override { return summary_; }
  std::vector<pictures::PictureMark> pictures(std::int64_t index) const override {
    std::vector<pictures::PictureMark> out;
    for (const auto row : rows_of(index)) {
      const auto own = rows_->pictures(row);
      out.insert(out.end(), own.begin(), own.end());
    }
    return out;
  }
  StoredPicture stored_picture(std::int64_t index, std::size_t number) const override {
    for (const auto row : rows_of(index)) {
      const auto count = rows_->pictures(row).size();
      if (number < count) return rows_->stored_picture(row, number);
      number -= count;
    }
    return {};
  }

  void read(std::int64_t index, Sample& out) const override {
    out = {.pixels = out.pixels};
    std::int32_t segment = 0;
    Sample row{.pixels = out.pixels};
    for (const auto each : rows_of(index)) {
      rows_->read(each, row);
      append(row, segment, out);
      out.pictures.insert(out.pictures.end(), row.pictures.begin(), row.pictures.end());
    }
  }

 private:
  /// The rows of a pack.
  std::span<const std::int64_t> rows_of(std::int64_t index) const {
    const auto pack = static_cast<std::size_t>(index);
    const auto first = pack == 0 ? 0 : packs_.ends[pack - 1];
    return std::span(packs_.rows).subspan(first, packs_.ends[pack] - first);
  }

  /// A row's own segments stay separate, and its padding stays padding.
  void append(const Sample& row, std::int32_t& segment, Sample& out) const {
    std::int32_t most = 1;
    for (std::size_t t = 0; t < row.input_ids.size(); ++t) {
      const std::int32_t own = row.segments.empty() ? 1 : row.segments[t];
      most = std::max(most, own);
      out.input_ids.push_back(row.input_ids[t]);
      out.labels.push_back(row.labels[t]);
      out.segments.push_back(own == 0 ? 0 : segment + own);
      out.positions.push_back(row.positions.empty() ? static_cast<std::int32_t>(t) : row.positions[t]);
    }
    segment += most;
    while (out.input_ids.size() % static_cast<std::size_t>(multiple_) != 0) {
      out.input_ids.push_back(rows_->padding().id);
      out.labels.push_back(kIgnoredLabel);
      out.segments.push_back(0);
      out.positions.push_back(0);
    }
  }

  std::shared_ptr<const Dataset> rows_;
  Packs packs_;
  std::int64_t length_;
  std::int64_t multiple_;
  std::string summary_;
};

}  // namespace

std::shared_ptr<const Dataset> pack(std::shared_ptr<const Dataset> rows, const config::PackedSequenceConfig& config,
                                    std::int64_t cp_size, const std::string& key, Diagnostics& problems) {
  const std::int64_t size = config.packed_sequence_size();
  const bool neat = config.neat();
  const std::int64_t most = std::min<std::int64_t>(config.capacity(), config.max_length().value_or(config.capacity()));
  const char* limit = most < config.capacity() ? "max_length" : "packed_sequence_size";
  const std::int64_t multiple =
      neat ? 1 : std::lcm<std::int64_t, std::int64_t>(config.pad_to_multiple_of(), cp_size > 1 ? 2 * cp_size : 1);
  std::vector<Row> kept;
  std::int64_t dropped = 0, tokens = 0;
  for (std::int64_t i = 0; i < rows->size(); ++i) {
    const std::int64_t length = rows->length(i), padded = (length + multiple - 1) / multiple * multiple;
    if (padded <= most) {
      kept.push_back({i, padded});
      continue;
    }
    ++dropped;
    if (config.drop_long_samples()) continue;
    problems.add("sequence-too-long", key + "." + limit)
        .says("row {} has {} tokens, a pack takes {}", i + 1, padded, most)
        .hint("a larger {}, or drop_long_samples: true", limit);
    return nullptr;
  }
  Packs packs = neat ? pack_evenly(kept, config) : pack_in_order(kept, config);
  if (packs.ends.empty()) {
    problems.add("empty-data", key + "." + limit).says("no row fits into {} tokens", most).hint("a larger {}", limit);
    return nullptr;
  }
  for (const std::int64_t row : packs.rows) tokens += rows->length(row);
  const double filled =
      100.0 * static_cast<double>(tokens) / static_cast<double>(size) / static_cast<double>(packs.ends.size());
  const std::string summary =
      fmt::format("{}, in {} packs of {}, {:.1f} % filled{}", rows->summary(), packs.ends.size(), size, filled,
                  dropped == 0 ? "" : fmt::format(", {} longer rows left out", dropped));
  return std::make_shared<PackedDataset>(std::move(rows), std::move(packs), size, multiple, summary);
}

}  // namespace automodel::data
