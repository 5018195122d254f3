// Which sample goes to which row of which batch, on which rank.
//
// The order of an epoch is that of PyTorch's samplers, torch.randperm with seed + epoch, so that every step gets the
// same samples as in NeMo AutoModel; beyond kStoredOrder samples it is a permutation that is computed element by
// element and takes no memory. Position p in the order belongs to step p / global_batch_size of the epoch, and within
// the step to run r, data-parallel rank d, row i such that p % global_batch_size = (r * dp_size + d) * local_batch_size
// + i. The samples of a step are therefore independent of the dp size and of gradient accumulation, and the rows of a
// rank within a run are consecutive in the order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace automodel::data {

/// A row without a sample: pads the last step of an epoch, so that shapes never change.
inline constexpr std::int64_t kNoSample = -1;

/// Up to this many samples, an epoch's order is PyTorch's and is kept in memory (64 MiB).
inline constexpr std::int64_t kStoredOrder = std::int64_t{1} << 24;

struct SamplerOptions {
  std::int64_t global_batch_size = 1;  ///< a multiple of local_batch_size * dp_size
  std::int64_t local_batch_size = 1;
  std::int64_t dp_size = 1;
  bool shuffle = true;     ///< false: data order in every epoch
  bool drop_last = false;  ///< drop the samples of an epoch that do not fill a global batch
  std::uint64_t seed = 42;
  /// The data set has its own order, which goes on from epoch to epoch: position p of epoch e is sample e * size + p.
  bool continues = false;
  /// Groups rows of similar length into batches: the order is sorted by length within windows of 50 global batches, and
  /// the batches of each window are then shuffled. Empty: lengths are ignored.
  std::function<std::int64_t(std::int64_t sample)> length = nullptr;
};

class Sampler {
 public:
  Sampler(std::int64_t num_samples, SamplerOptions options);

  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Local batches that each rank sees per epoch, which is what the step scheduler counts. Runs of the last step that
  /// would be empty on every rank are left out.
  std::int64_t runs_per_epoch() const;
  std::int64_t runs_per_step() const;
  /// Runs of a step in which at least one rank has a sample.
  std::int64_t runs_of(std::int64_t step_in_epoch) const;

  /// The sample at a position of an epoch's order; kNoSample past its end.
  std::int64_t sample(std::int64_t epoch, std::int64_t position) const;
  /// The samples of one local batch: local_batch_size entries, kNoSample for empty rows. Thread-safe.
  std::vector<std::int64_t> rows(std::int64_t epoch, std::int64_t step_in_epoch, std::int64_t run,
                                 std::int64_t dp_rank) const;
  const SamplerOptions& options() const { return options_; }

 private:
  using Order = std::function<std::int64_t(std::int64_t position)>;
  Order order(std::int64_t epoch) const;
  std::int64_t plain_sample(const Order& order, std::int64_t position) const;
  void fill_window(std::int64_t epoch, std::int64_t window) const;

  std::int64_t num_samples_;
  SamplerOptions options_;
  std::int64_t used_;  ///< samples per epoch
  std::int64_t steps_per_epoch_;

  /// Most recently used stored order.
  mutable std::mutex order_mutex_;
  mutable std::int64_t order_epoch_ = -1;
  mutable std::shared_ptr<const std::vector<std::uint32_t>> order_;

  /// Most recently used window, sorted by length.
  mutable std::mutex mutex_;
  mutable std::int64_t window_epoch_ = -1;
  mutable std::int64_t window_ = -1;
  mutable std::vector<std::int64_t> window_samples_;
};

}  // namespace automodel::data
