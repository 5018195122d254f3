// The memory of one unit: flat buffers of values and gradients, whole or this rank's shard of them.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "model/weights.h"
#include "parallel/data/gather_buffers.h"
#include "parallel/data/options.h"
#include "parallel/data/quantized_unit.h"

namespace automodel::parallel {

/// A run of one weight inside this rank's master buffer.
struct Segment {
  model::Weight* weight;
  std::int64_t first;   ///< in the weight's local elements
  std::int64_t offset;  ///< in the master buffer
  std::int64_t length;
};

/// Bytes that are allocated now.
struct StorageBytes {
  std::int64_t parameters = 0;  ///< compute values, gathered ones included
  std::int64_t masters = 0;     ///< only where they are separate
  std::int64_t gradients = 0;
};

/// Invariants: a weight's value is defined exactly while the unit is gathered. Its gradient is always a view of `grads`
/// while that buffer is there. The master buffer covers the rank's shard with shard_optimizer, else the whole unit.
/// A unit of which nothing is trained has no gradients and no masters apart from the values computed with: its master
/// buffer has their type, and is a shard only with shard_parameters. Weights that are kept in few bits lie beside, in
/// a buffer of bytes.
class UnitStorage {
 public:
  UnitStorage(const model::Unit& unit, const DataParallelOptions& options, const ReduceGroups& groups);

  /// Allocates and fills the master values, and makes the values computed with from them where those are not sharded.
  void bind(const WeightSource& source);

  /// From now on values are gathered into these buffers, in turn with other units. Only for units that are released
  /// after use.
  void share(GatherBuffers& buffers) { buffers_ = &buffers; }
  const GatherBuffers* buffers() const { return buffers_; }

  // Values.
  bool gathered() const { return gathered_; }
  /// Starts gathering, unless values are whole or in flight. False if every shared buffer is taken.
  bool start_gather();
  /// Values are there when this returns; a shared buffer is free or was taken by start_gather().
  void finish_gather();
  /// Frees the gathered values.
  void release();
  /// Updates the compute values from the masters after an optimizer step. With overlapped gathers, the whole values are
  /// still in flight when this returns: finish_publish() waits for them.
  void publish();
  void finish_publish();

  // Gradients.
  /// Nothing was added yet: contents are undefined.
  void begin_step();
  /// Makes sure that gradients have memory to be added to (with shard_gradients they come and go). None is needed once
  /// the step's last reduction is on its way.
  void need_gradients();
  /// Starts reducing what was accumulated so far; with `last` the sum is complete afterwards.
  void start_reduce(bool last);
  /// This rank has its part of the sum when this returns, and with shard_gradients the whole gradients are freed. The
  /// sum over replicas may still be in flight.
  void advance_reduce();
  /// The reduced gradients are in gradient() when this returns.
  void finish_reduce();
  /// Published values are here, and gradients that nothing was added to are zero.
  void settle();
  bool reduced() const { return reduced_; }

  // What the optimizer works on.
  at::Tensor master() const { return master_; }
  /// False if every rank has the whole buffer.
  bool sharded() const { return sharded_; }
  /// The reduced gradient of the same elements as master(), in the gradient type.
  at::Tensor gradient() { return reduced_gradient_; }
  const std::vector<Segment>& segments() const { return segments_; }
  StorageBytes bytes() const;
  /// Of weight `index` of the unit, in the unit's whole buffer.
  std::int64_t offset_of(std::size_t index) const { return offsets_[index]; }
  const model::Unit& unit() const { return unit_; }
  std::int64_t elements() const { return elements_; }
  /// Of the whole buffer.
  std::int64_t padded_elements() const { return padded_; }

 private:
  void view_values(const at::Tensor& flat);
  void clear_values();
  void free_gradients();
  void zero_untouched();

  const model::Unit& unit_;
  const DataParallelOptions& options_;
  const ReduceGroups& groups_;
  std::vector<std::int64_t> offsets_;  ///< of each weight in the flat buffer
  std::int64_t elements_ = 0;          ///< of all weights
  GatherBuffers* buffers_ = nullptr;   ///< null: the unit allocates what it gathers into
  std::int64_t padded_ = 0;            ///< a multiple of the number of shards
  std::int64_t shard_ = 0;             ///< elements of one shard
  std::vector<Segment> segments_;
  bool trained_ = true;           ///< any of the weights
  bool sharded_ = false;          ///< the master buffer is this rank's shard
  bool separate_master_ = false;  ///< master values are not the values computed with
  bool gathered_ = false;
  QuantizedUnit quantized_;
  at::Tensor values_, master_, compute_shard_, grads_, reduced_gradient_;
  std::vector<at::Tensor> in_flight_;
  std::vector<comm::WorkPtr> gathering_, reducing_;
  bool accumulated_ = false;  ///< reduced_gradient_ holds sums of earlier microbatches
  bool reduced_ = false;
  bool advanced_ = false;  ///< what is in flight is this rank's part alone
};

}  // namespace automodel::parallel
