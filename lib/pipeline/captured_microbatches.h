// Microbatches of fixed shape as captured work (ops/captured_work.h): forward and backward of a microbatch are captured
// once per shape and then replayed, so that the host issues one launch instead of thousands.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/blocks.h"
#include "model/stage_model.h"
#include "ops/captured_work.h"
#include "pipeline/stage.h"

namespace automodel::pipeline {

/// For a stage that is the whole model, on a rank that does not communicate inside a microbatch. Its gradients must be
/// in persistent memory with defined contents (StageSharding::settle), because captured work accumulates into them.
class CapturedMicrobatches {
 public:
  /// Maximum number of captured shapes; microbatches of further shapes run eagerly.
  static constexpr std::size_t kMostShapes = 4;
  /// Microbatches of a shape that run eagerly on the capture stream before it is captured.
  static constexpr int kWarmUps = 2;

  /// `stage` must outlive this.
  CapturedMicrobatches(Stage& stage, std::unique_ptr<ops::WorkCapture> capture);
  ~CapturedMicrobatches();

  /// Forward and backward of microbatch `number` of this run. Returns its loss times `options.loss_scale` in a tensor
  /// that later replays do not overwrite; undefined, having done nothing, if the microbatch must run eagerly.
  at::Tensor run(int number, const model::Microbatch& data, const model::ForwardOptions& options);

  /// Microbatches so far, by how they ran. `usual`: left to the caller. A captured one is also the first replay of its
  /// shape.
  struct Counts {
    int usual = 0, warm_ups = 0, captures = 0, replays = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Shape;
  Shape* shape_of(const model::Microbatch& data, plan::Recompute recompute);

  Stage& stage_;
  std::unique_ptr<ops::WorkCapture> capture_;
  std::vector<std::unique_ptr<Shape>> shapes_;
  Counts counts_ = {};
};

}  // namespace automodel::pipeline
