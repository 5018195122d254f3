#include "data/batch.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace automodel::data {
namespace {

/// Copies one sample to the row that starts at element `begin`.
void put_row(const Sample& sample, std::size_t begin, const BatchOptions& options, Batch& out) {
  for (std::size_t t = 0; t < sample.input_ids.size(); ++t) {
    const std::int32_t segment = sample.segments.empty() ? 1 : sample.segments[t];
    if (segment == 0) {
      out.input_ids[begin + t] = sample.input_ids[t];
      out.positions[begin + t] = sample.positions.empty() ? static_cast<std::int64_t>(t) : sample.positions[t];
      continue;  // padding inside a row keeps its place but does not count
    }
    out.input_ids[begin + t] = sample.input_ids[t];
    out.positions[begin + t] = sample.positions.empty() ? static_cast<std::int64_t>(t) : sample.positions[t];
    out.segments[begin + t] = segment;
    ++out.num_tokens;
    if (sample.labels[t] == kIgnoredLabel || sample.labels[t] == options.ignore_index) continue;
    out.labels[begin + t] = sample.labels[t];
    ++out.num_label_tokens;
  }
}

}  // namespace

Batch make_batch(std::span<const Sample> rows, std::vector<std::int64_t> samples, const BatchOptions& options) {
  AUTOMODEL_CHECK(rows.size() == samples.size(), "one sample per row");
  AUTOMODEL_CHECK(options.multiple > 0, "a multiple is at least 1");
  Batch out;
  out.rows = static_cast<std::int64_t>(rows.size());
  out.length = std::max<std::int64_t>(options.shortest, 1);
  for (const auto& row : rows) {
    AUTOMODEL_CHECK(row.labels.size() == row.input_ids.size(), "one label a token");
    out.length = std::max(out.length, static_cast<std::int64_t>(row.input_ids.size()));
    out.needs_segments = out.needs_segments || !row.segments.empty();
  }
  out.length = (out.length + options.multiple - 1) / options.multiple * options.multiple;
  const auto length = static_cast<std::size_t>(out.length);
  const std::size_t size = rows.size() * length;
  out.input_ids.assign(size, options.pad_id);
  out.labels.assign(size, kIgnoredLabel);
  out.positions.assign(size, 0);
  out.segments.assign(size, 0);
  for (std::size_t i = 0; i < rows.size(); ++i) put_row(rows[i], i * length, options, out);
  out.samples = std::move(samples);
  if (std::ranges::any_of(rows, [](const Sample& row) { return !row.pictures.empty(); }))
    for (const auto& row : rows) out.pictures.push_back(row.pictures);
  return out;
}

}  // namespace automodel::data
