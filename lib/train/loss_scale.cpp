#include "train/loss_scale.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "data/sampler.h"

namespace automodel::train {
namespace {

/// Label tokens in microbatch `m`, over whole sequences.
std::int64_t count_labels(const data::Batch& batch, std::size_t m, int rows) {
  const auto values = static_cast<std::ptrdiff_t>(rows * batch.length);
  const auto begin = batch.labels.begin() + static_cast<std::ptrdiff_t>(m) * values;
  return std::count_if(begin, begin + values, [](std::int64_t label) { return label != data::kIgnoredLabel; });
}

}  // namespace

LossCounts count_losses(const std::vector<data::Batch>& batches, int rows) {
  LossCounts out;
  for (const auto& batch : batches) {
    out.tokens += static_cast<double>(batch.num_tokens);
    out.labels += static_cast<double>(batch.num_label_tokens);
    for (std::int64_t first = 0; first < batch.rows; first += rows) {
      const auto begin = batch.samples.begin() + static_cast<std::ptrdiff_t>(first);
      const bool filled =
          std::any_of(begin, begin + rows, [](std::int64_t sample) { return sample != data::kNoSample; });
      out.microbatches += filled ? 1 : 0;
    }
  }
  return out;
}

std::vector<double> LossScale::factors(const data::Batch& batch, int rows) const {
  std::vector<double> out(static_cast<std::size_t>(batch.rows / rows), 1 / std::max(1.0, whole_.labels));
  if (by_microbatch_)
    for (std::size_t m = 0; m < out.size(); ++m)
      out[m] = 1.0 / static_cast<double>(std::max<std::int64_t>(1, count_labels(batch, m, rows)));
  return out;
}

double LossScale::divisor() const {
  return by_microbatch_ ? std::max(1.0, whole_.microbatches) : 0;
}

}  // namespace automodel::train
