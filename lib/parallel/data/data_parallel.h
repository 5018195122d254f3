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

/// Owns the memory of a stage's weights and their gradients; gathers, frees and reduces it as the schedule and the
/// model say. A step goes: begin_step; for each microbatch forward and backward; reduce; finish; the optimizer changes
/// masters(); publish.
class DataParallel : public model::UnitObserver {
 public:
  /// `weights` outlives this.
  DataParallel(model::Weights& weights, DataParallelOptions options, ReduceGroups dense, ReduceGroups expert);

  /// Allocates everything and fills it with values.
  void bind(const WeightSource& source);

  // The schedule's actions.
  void unshard();
  void reshard();
  /// No more gradients will be added in this step: starts all reductions.
  void reduce();

  /// Contents of all gradients become undefined (zero where nothing is added).
  void begin_step();
  /// The backward pass that begins now is a stage's last of the step: units may be reduced as they become ready.
  void last_backward() { last_backward_ = true; }
  /// Values are whole and gradients can be added to, in memory that stays: until reduce() no event has anything to do.
  /// Not with shard_gradients.
  void settle();
  /// Called before and after deferred weight gradients are computed.
  void weight_gradients_begin();
  void weight_gradients_done();
  /// All gradients are reduced when this returns.
  void finish();
  /// After the optimizer changed the masters.
  void publish();

  std::vector<UnitStorage*> storages();
  StorageBytes bytes() const;
  const DataParallelOptions& options() const { return options_; }

  // model::UnitObserver
  void before_forward(int unit) override;
  void after_forward(int unit) override;
  void before_backward(int unit) override;
  void after_backward(int unit) override;
  void before_gradients(int unit) override { at(unit).need_gradients(); }

 private:
  UnitStorage& at(int unit) { return *storages_[static_cast<std::size_t>(unit)]; }
  void gather(int unit, int ahead, int direction);
  /// Gives units of one kind and size two buffers for all of them.
  void share_buffers();
  /// Frees a unit that was gathered ahead and is not needed yet, because it occupies the buffer that this one needs.
  void free_buffer(int unit);
  /// Gathered values are freed after each use.
  bool frees(int unit) {
    return options_.reshard_after_forward && !options_.whole_stage &&
           !(options_.keep_experts && at(unit).unit().expert);
  }
  /// Starts reducing what was accumulated in the unit. While one unit is being reduced the next is computed; earlier
  /// ones are complete, so that at most two units of sharded gradients are whole.
  void start_reduce(UnitStorage& storage, bool last);

  DataParallelOptions options_;
  ReduceGroups dense_, expert_;
  /// Keyed by what distinguishes the units of one layer (experts, trained, adapters) and by size. Empty without
  /// double_buffer.
  std::map<std::tuple<bool, bool, bool, std::int64_t>, GatherBuffers> buffers_;
  std::vector<std::unique_ptr<UnitStorage>> storages_;
  bool last_backward_ = false;
  UnitStorage* travelling_ = nullptr;  ///< the unit whose reduction was started last
  UnitStorage* arrived_ = nullptr;     ///< the one before it: other copies' parts of its sum may be under way
};

}  // namespace automodel::parallel
