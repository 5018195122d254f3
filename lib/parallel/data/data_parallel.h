// Data parallelism of one pipeline stage: one mechanism for DDP, ZeRO 1 to 3, FSDP2 and HSDP.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "model/stage_model.h"
#include "parallel/data/gather_buffers.h"
#include "parallel/data/options.h"
#include "parallel/data/unit_storage.h"

namespace automodel::parallel {

/// Owns the memory of a stage's weights and their gradients; gathers, frees and reduces them when the schedule and the
/// model say so. A step consists of: begin_step; forward and backward for each microbatch; reduce; finish; the
/// optimizer's update of the masters; publish.
class DataParallel : public model::UnitObserver {
 public:
  /// `weights` must outlive this.
  DataParallel(model::Weights& weights, StorageOptions options, ReduceGroups dense, ReduceGroups expert);

  /// Allocates everything and loads the values.
  void bind(const WeightSource& source);

  // The schedule's actions.
  void unshard();
  void reshard();
  /// No more gradients will be accumulated in this step: starts all remaining reductions.
  void reduce();

  /// Resets all gradients: their content is undefined until something is added, and counts as zero if nothing is.
  void begin_step();
  /// The backward pass that begins now is the stage's last one in this step: units may be reduced as soon as they are
  /// ready.
  void last_backward() { last_backward_ = true; }
  /// Makes values whole and gradients ready to be accumulated into, in memory that stays: until reduce() no event has
  /// anything to do. Not with sharding.gradients.
  void settle();
  /// Call before and after computing deferred weight gradients.
  void weight_gradients_begin();
  void weight_gradients_done();
  /// Waits until all gradients are reduced.
  void finish();
  /// Call after the optimizer updated the masters.
  void publish();

  std::vector<UnitStorage*> storages();
  StorageBytes bytes() const;
  const StorageOptions& options() const { return options_; }

  // model::UnitObserver
  void before_forward(int unit) override;
  void after_forward(int unit) override;
  void before_backward(int unit) override;
  void after_backward(int unit) override;
  void before_gradients(int unit) override { at(unit).need_gradients(); }

 private:
  UnitStorage& at(int unit) { return *storages_[static_cast<std::size_t>(unit)]; }
  void gather(int unit, int ahead, int direction);
  /// Lets units of one kind and size share two buffers.
  void share_buffers();
  /// Frees a unit that was gathered ahead of its use, to make its buffer available to `unit`.
  void free_buffer(int unit);
  /// Whether gathered values are freed after each use.
  bool frees(int unit) {
    return options_.sharding.reshard_after_forward && !options_.sharding.whole_stage &&
           !(options_.sharding.keep_experts && at(unit).unit().expert);
  }
  /// Starts reducing the unit's accumulated gradients. This overlaps with computing the next unit; reductions of
  /// earlier units are completed first, so that at most two units hold unsharded gradients.
  void start_reduce(UnitStorage& storage, bool last);

  StorageOptions options_;
  ReduceGroups dense_, expert_;
  /// Keyed by what distinguishes the units of one layer (experts, trained, adapters) and by size. Empty without
  /// double_buffer.
  std::map<std::tuple<bool, bool, bool, std::int64_t>, GatherBuffers> buffers_;
  std::vector<std::unique_ptr<UnitStorage>> storages_;
  bool last_backward_ = false;
  UnitStorage* in_flight_ = nullptr;  ///< unit whose reduction was started last
  UnitStorage* arrived_ = nullptr;    ///< the one before it, whose sum over replicas may still be in flight
};

}  // namespace automodel::parallel
