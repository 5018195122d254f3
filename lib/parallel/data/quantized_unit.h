// The quantized weights of a unit: one buffer of bytes, whole or this rank's shard of it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "model/weights.h"
#include "parallel/data/options.h"

namespace automodel::parallel {

/// Supplies initial or loaded values: writes elements [first, first + out.numel()) of this rank's part of `weight`
/// (row-major in its local shape) to `out`, in its type.
using WeightSource = std::function<void(const model::Weight& weight, std::int64_t first, at::Tensor out)>;

/// Weights have their bytes exactly while the unit is gathered. Bytes are sharded like frozen values: only with
/// sharding.parameters.
class QuantizedUnit {
 public:
  QuantizedUnit(const model::Unit& unit, const StorageOptions& options, const ReduceGroups& groups);

  bool empty() const { return weights_.empty(); }
  /// Reads every weight that this rank has bytes of as a whole, because scales depend on the whole tensor.
  void bind(const WeightSource& source);
  void start_gather();
  void finish_gather();
  /// Frees gathered bytes.
  void release();
  std::int64_t bytes() const;

 private:
  bool sharded() const { return options_.sharding.parameters && groups_.shard->size() > 1; }
  void fill(const WeightSource& source, std::size_t index);
  void view_all();

  const StorageOptions& options_;
  const ReduceGroups& groups_;
  std::vector<model::Weight*> weights_ = {};
  std::vector<std::int64_t> offsets_ = {};  ///< of each weight in the whole buffer
  std::int64_t padded_ = 0, begin_ = 0;     ///< bytes in the whole buffer; where this rank's shard begins in it
  at::Tensor kept_, gathered_;
  comm::WorkPtr gathering_;
};

}  // namespace automodel::parallel
