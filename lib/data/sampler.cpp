#include "data/sampler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "data/permutation.h"
#include "data/torch_order.h"

namespace automodel::data {
namespace {

/// Number of global batches that are sorted by length together.
constexpr std::int64_t kWindowBatches = 50;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

Sampler::Sampler(std::int64_t num_samples, SamplerOptions options)
    : num_samples_(num_samples), options_(std::move(options)) {
  const auto& o = options_;
  AUTOMODEL_CHECK(num_samples > 0, "a dataset has at least one sample");
  AUTOMODEL_CHECK(o.local_batch_size > 0 && o.dp_size > 0 && o.global_batch_size > 0 &&
                      o.global_batch_size % (o.local_batch_size * o.dp_size) == 0,
                  "the global batch is a multiple of the local batches of all ranks");
  steps_per_epoch_ = o.drop_last ? num_samples / o.global_batch_size : ceil_div(num_samples, o.global_batch_size);
  used_ = std::min(num_samples, steps_per_epoch_ * o.global_batch_size);
}

std::int64_t Sampler::runs_per_step() const {
  return options_.global_batch_size / (options_.local_batch_size * options_.dp_size);
}

std::int64_t Sampler::runs_per_epoch() const {
  return ceil_div(used_, options_.local_batch_size * options_.dp_size);
}

std::int64_t Sampler::runs_of(std::int64_t step_in_epoch) const {
  return std::min(runs_per_step(), runs_per_epoch() - step_in_epoch * runs_per_step());
}

Sampler::Order Sampler::order(std::int64_t epoch) const {
  if (options_.continues) return [first = epoch * num_samples_](std::int64_t position) { return first + position; };
  if (!options_.shuffle) return [](std::int64_t position) { return position; };
  if (num_samples_ > kStoredOrder) {
    const auto key = RandomStream(options_.seed, "data/order").bits64(static_cast<std::uint64_t>(epoch));
    return [computed = Permutation(static_cast<std::uint64_t>(num_samples_), key)](std::int64_t position) {
      return static_cast<std::int64_t>(computed(static_cast<std::uint64_t>(position)));
    };
  }
  const std::lock_guard lock(order_mutex_);
  if (epoch != order_epoch_) {
    order_ = std::make_shared<const std::vector<std::uint32_t>>(
        torch_permutation(options_.seed + static_cast<std::uint64_t>(epoch), num_samples_));
    order_epoch_ = epoch;
  }
  return [stored = order_](std::int64_t position) {
    return static_cast<std::int64_t>((*stored)[static_cast<std::size_t>(position)]);
  };
}

std::int64_t Sampler::plain_sample(const Order& order, std::int64_t position) const {
  return position >= used_ ? kNoSample : order(position);
}

void Sampler::fill_window(std::int64_t epoch, std::int64_t window) const {
  const std::int64_t batch = options_.global_batch_size;
  const std::int64_t first = window * kWindowBatches * batch;
  const std::int64_t size = std::min(kWindowBatches * batch, used_ - first);
  const Order in_order = order(epoch);
  std::vector<std::pair<std::int64_t, std::int64_t>> sorted;  // (length, sample)
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t sample = plain_sample(in_order, first + i);
    sorted.emplace_back(options_.length(sample), sample);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  // Full batches are shuffled; an incomplete batch stays at the end of the epoch.
  const std::int64_t batches = size / batch;
  const auto key = RandomStream(options_.seed, "data/windows").bits64(static_cast<std::uint64_t>(epoch));
  window_samples_.clear();
  for (std::int64_t b = 0; b < ceil_div(size, batch); ++b) {
    std::int64_t from = b;
    if (options_.shuffle && b < batches)
      from = static_cast<std::int64_t>(
          Permutation(static_cast<std::uint64_t>(batches),
                      key + static_cast<std::uint64_t>(window))(static_cast<std::uint64_t>(b)));
    for (std::int64_t i = from * batch; i < std::min(size, (from + 1) * batch); ++i)
      window_samples_.push_back(sorted[static_cast<std::size_t>(i)].second);
  }
  window_epoch_ = epoch;
  window_ = window;
}

std::int64_t Sampler::sample(std::int64_t epoch, std::int64_t position) const {
  if (position >= used_) return kNoSample;
  if (!options_.length) return plain_sample(order(epoch), position);
  const std::int64_t window_size = kWindowBatches * options_.global_batch_size;
  const std::lock_guard lock(mutex_);
  if (epoch != window_epoch_ || position / window_size != window_) fill_window(epoch, position / window_size);
  return window_samples_[static_cast<std::size_t>(position % window_size)];
}

std::vector<std::int64_t> Sampler::rows(std::int64_t epoch, std::int64_t step_in_epoch, std::int64_t run,
                                        std::int64_t dp_rank) const {
  const auto& o = options_;
  AUTOMODEL_CHECK(step_in_epoch < steps_per_epoch_ && run < runs_per_step() && dp_rank < o.dp_size, "the batch exists");
  const std::int64_t first = step_in_epoch * o.global_batch_size + (run * o.dp_size + dp_rank) * o.local_batch_size;
  std::vector<std::int64_t> out(static_cast<std::size_t>(o.local_batch_size), kNoSample);
  const Order in_order = order(epoch);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t position = first + static_cast<std::int64_t>(i);
    out[i] = o.length ? sample(epoch, position) : plain_sample(in_order, position);
  }
  return out;
}

}  // namespace automodel::data
