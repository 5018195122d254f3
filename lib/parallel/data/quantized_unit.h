// The weights of a unit that are kept in few bits: one run of bytes, whole or this rank's shard of it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "model/weights.h"
#include "parallel/data/options.h"

namespace automodel::parallel {

/// Gives initial or loaded values: elements [first, first + out.numel()) of this rank's part of `weight` (row-major in
/// its local shape), in `out`'s type.
using WeightSource = std::function<void(const model::Weight& weight, std::int64_t first, at::Tensor out)>;

/// Weights have their bytes exactly while the unit is gathered. Bytes are sharded as frozen numbers are: with
/// shard_parameters alone.
class QuantizedUnit {
 public:
  QuantizedUnit(const model::Unit& unit, const DataParallelOptions& options, const ReduceGroups& groups);

  bool empty() const { return weights_.empty(); }
  /// Reads every weight whole, whatever part of it is here: scales belong to the whole.
  void bind(const WeightSource& source);
  void start_gather();
  void finish_gather();
  /// Frees gathered bytes.
  void release();
  std::int64_t bytes() const;

 private:
  bool sharded() const { return options_.shard_parameters && groups_.shard->size() > 1; }
  void fill(const WeightSource& source, std::size_t index);
  void view_all();

  const DataParallelOptions& options_;
  const ReduceGroups& groups_;
  std::vector<model::Weight*> weights_ = {};
  std::vector<std::int64_t> offsets_ = {};  ///< of each weight in the whole run
  std::int64_t padded_ = 0, begin_ = 0;     ///< bytes: of the whole run, before this rank's
  at::Tensor kept_, gathered_;
  comm::WorkPtr gathering_;
};

}  // namespace automodel::parallel
