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

/// A contiguous part of one weight in this rank's master buffer.
struct Segment {
  model::Weight* weight;
  std::int64_t first;   ///< index of its first element in the weight's local elements
  std::int64_t offset;  ///< in the master buffer
  std::int64_t length;
};

/// Currently allocated bytes.
struct StorageBytes {
  std::int64_t parameters = 0;  ///< values used in computation, including gathered ones
  std::int64_t masters = 0;     ///< only if they are separate from those
  std::int64_t gradients = 0;
};

/// Invariants: a weight's value is defined exactly while the unit is gathered. While the buffer `grads_` exists, the
/// gradients of trained weights are views of it. The master buffer covers this rank's shard with sharding.optimizer,
/// else the whole unit. A frozen unit has no gradients, and no masters apart from the values used in computation: its
/// master buffer has their type, and is a shard only with sharding.parameters. Quantized weights are stored separately,
/// in a buffer of bytes.
class UnitStorage {
 public:
  UnitStorage(const model::Unit& unit, const StorageOptions& options, const ReduceGroups& groups);

  /// Allocates and loads the master values and, unless parameters are sharded, derives the values used in computation.
  void bind(const WeightSource& source);

  /// From now on values are gathered into these buffers, shared with other units. Only for units that are released
  /// after use.
  void share(GatherBuffers& buffers) { buffers_ = &buffers; }
  const GatherBuffers* buffers() const { return buffers_; }

  // Values.
  bool gathered() const { return gathered_; }
  /// Starts gathering, unless values are gathered or in flight. False if every shared buffer is taken.
  bool start_gather();
  /// Waits until values are gathered. With shared buffers, one must be free, or taken by start_gather() before.
  void finish_gather();
  /// Frees the gathered values.
  void release();
  /// Updates the values used in computation from the masters after an optimizer step. With overlapped gathers they are
  /// still in flight when this returns: finish_publish() waits for them.
  void publish();
  void finish_publish();

  // Gradients.
  /// Marks gradients as empty, with undefined contents.
  void begin_step();
  /// Makes sure that gradients have memory to accumulate in (with sharding.gradients it is not persistent). Does
  /// nothing once the step's last reduction was started.
  void need_gradients();
  /// Starts reducing what was accumulated so far; with `last` the step's sum is complete afterwards.
  void start_reduce(bool last);
  /// Waits for this rank's part of the sum and, with sharding.gradients, frees the whole gradients. The sum over
  /// replicas may still be in flight.
  void advance_reduce();
  /// Waits until gradient() has the reduced gradients.
  void finish_reduce();
  /// Published values are here, and gradients that nothing was added to are zero.
  void settle();
  bool reduced() const { return reduced_; }

  // What the optimizer works on.
  at::Tensor master() const { return master_; }
  /// Whether master() is this rank's shard; false if every rank has the whole buffer.
  bool sharded() const { return sharded_; }
  /// The reduced gradient of the same elements as master(), in the gradient type.
  at::Tensor gradient() { return reduced_gradient_; }
  const std::vector<Segment>& segments() const { return segments_; }
  StorageBytes bytes() const;
  /// Offset of weight `index` in the unit's whole buffer.
  std::int64_t offset_of(std::size_t index) const { return offsets_[index]; }
  const model::Unit& unit() const { return unit_; }
  std::int64_t elements() const { return elements_; }
  /// Elements in the whole buffer, including padding.
  std::int64_t padded_elements() const { return padded_; }

 private:
  void view_values(const at::Tensor& flat);
  void clear_values();
  void free_gradients();
  void zero_untouched();

  const model::Unit& unit_;
  const StorageOptions& options_;
  const ReduceGroups& groups_;
  std::vector<std::int64_t> offsets_;  ///< of each weight in the flat buffer
  std::int64_t elements_ = 0;          ///< in all weights
  GatherBuffers* buffers_ = nullptr;   ///< null: the unit allocates its own memory for gathering
  std::int64_t padded_ = 0;            ///< a multiple of the number of shards
  std::int64_t shard_ = 0;             ///< elements of one shard
  std::vector<Segment> segments_;
  bool trained_ = true;           ///< whether any of the weights is
  bool sharded_ = false;          ///< the master buffer is this rank's shard
  bool separate_master_ = false;  ///< master values are separate from those used in computation
  bool gathered_ = false;
  QuantizedUnit quantized_;
  at::Tensor values_, master_, compute_shard_, grads_, reduced_gradient_;
  std::vector<at::Tensor> in_flight_;
  std::vector<comm::WorkPtr> gathering_, reducing_;
  bool accumulated_ = false;  ///< reduced_gradient_ holds sums of earlier microbatches
  bool reduced_ = false;
  bool advanced_ = false;  ///< only this rank's part is still in flight
};

}  // namespace automodel::parallel
