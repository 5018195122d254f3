// The batches of a step for one data-parallel rank: combines dataset, order and padding.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/data_config.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/sampler.h"

namespace automodel::data {

struct LoaderOptions {
  bool training = true;  ///< training sets are shuffled unless the section says otherwise; validation sets are not
  std::int64_t global_batch_size = 1;
  std::int64_t local_batch_size = 1;
  std::int64_t dp_size = 1;
  std::int64_t dp_rank = 0;
  std::uint64_t seed = 42;
  std::int64_t ignore_index = kIgnoredLabel;  ///< loss_fn.ignore_index
  std::int64_t multiple = 1;                  ///< rows are padded to a multiple of this and of the dataset's own
  std::int64_t shortest = 1;       ///< rows are padded to at least this; the longest row, if a pipeline needs one shape
  std::string key = "dataloader";  ///< recipe key of the section
};

class Loader {
 public:
  /// Null after adding problems (their keys are dotted recipe keys): `bad-value` if a training dataloader.batch_size
  /// differs from step_scheduler.local_batch_size, `empty-data` if drop_last leaves nothing. For validation the
  /// section's batch_size has no effect (the loss is a mean over tokens), and global_batch_size is one run over all
  /// ranks.
  static std::unique_ptr<Loader> make(std::shared_ptr<const Dataset> dataset, const config::DataloaderConfig& config,
                                      const LoaderOptions& options, Diagnostics& problems);

  /// This rank's batches of a step, one per run; every rank gets the same number. Thread-safe.
  std::vector<Batch> load(std::int64_t epoch, std::int64_t step_in_epoch) const;
  const Sampler& sampler() const { return *sampler_; }
  const Dataset& dataset() const { return *dataset_; }
  /// From now on pictures have no pixels (Sample::pixels).
  void leave_out_pixels() { pixels_ = false; }

 private:
  Loader() = default;

  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<const Sampler> sampler_;
  BatchOptions batch_;
  std::int64_t dp_rank_ = 0;
  bool pixels_ = true;
};

}  // namespace automodel::data
