// What is known about a step once it has finished: one record for training, one for validation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

namespace automodel::metrics {

/// One optimizer step. The members are the keys of training.jsonl, in the same order.
struct StepRecord {
  std::int64_t step = 0;                          ///< from 0
  std::int64_t epoch = 0;                         ///< from 0
  double timestamp = 0;                           ///< seconds since 1970, UTC
  double loss = 0;                                ///< mean over all label tokens of the global batch, before the update
  double grad_norm = 0;                           ///< global norm over all gradients, before clipping
  double lr = 0;                                  ///< learning rate of the step
  double mem = 0;                                 ///< GiB, peak memory of a rank
  double tps = 0;                                 ///< tokens per second, all ranks
  double tps_per_gpu = 0;                         ///< the same, divided by the number of ranks
  std::optional<double> mfu = std::nullopt;       ///< fraction of peak FLOP/s (0.41), if the peak is known
  std::int64_t num_tokens_per_step = 0;           ///< without padding
  std::int64_t num_label_tokens = 0;              ///< tokens that the loss averages over
  double step_time = 0;                           ///< seconds
  std::optional<double> accuracy = std::nullopt;  ///< of a classifier, before the update; absent from other records
  /// Of a student: cross-entropy (0 where none is computed) and divergence from its teacher; absent from other records.
  std::optional<double> ce_loss = std::nullopt, kd_loss = std::nullopt;
};

/// One pass over a validation set. The members are the keys of validation.jsonl.
struct ValidationRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double timestamp = 0;
  double val_loss = 0;
  double lr = 0;
  std::int64_t num_label_tokens = 0;
  double mem = 0;
  std::optional<double> accuracy = std::nullopt;                         ///< of a classifier
  std::optional<double> ce_loss = std::nullopt, kd_loss = std::nullopt;  ///< of a student
};

/// How each rank spent its steps: seconds indexed by rank, each the median over the last `steps` steps. The members are
/// the keys of ranks.jsonl.
struct RankTimes {
  std::int64_t step = 0;  ///< the last of those steps
  std::int64_t epoch = 0;
  double timestamp = 0;
  std::int64_t steps = 0;
  std::vector<double> data = {};       ///< waiting for the next batch
  std::vector<double> compute = {};    ///< forward and backward passes
  std::vector<double> gradients = {};  ///< work on gradients after the passes
  std::vector<double> optimizer = {};
  std::vector<double> waiting = {};  ///< on other ranks, during any of the above; excluded from their times
};

/// A value with its key; null if unknown. A list has one value per rank.
struct Metric {
  std::string_view key;
  std::variant<std::nullptr_t, std::int64_t, double, std::vector<double>> value;
};

/// A record as the writers see it: when it happened, and its metrics in order.
struct RecordView {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double timestamp = 0;
  std::vector<Metric> metrics = {};
};

RecordView view_of(const StepRecord& record);
RecordView view_of(const ValidationRecord& record);
RecordView view_of(const RankTimes& times);

}  // namespace automodel::metrics
