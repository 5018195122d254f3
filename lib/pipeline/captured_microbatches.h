// Microbatches of fixed shape as captured work (ops/captured_work.h): forward and backward of one are captured once and
// replayed for each of that shape, so that the host starts one thing instead of thousands.
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

/// Of a stage that is the whole model, on a rank that communicates with no other inside a microbatch. Its gradients
/// must have memory that stays and defined contents (StageSharding::settle): captured work adds to them.
class CapturedMicrobatches {
 public:
  /// Shapes that are captured at most; microbatches of others run as usual.
  static constexpr std::size_t kMostShapes = 4;
  /// Microbatches of a shape that run as usual, on the stream that captures, before it is captured.
  static constexpr int kWarmUps = 2;

  /// `stage` outlives this.
  CapturedMicrobatches(Stage& stage, std::unique_ptr<ops::WorkCapture> capture);
  ~CapturedMicrobatches();

  /// Forward and backward of microbatch `number` of this run. Returns its loss times `options.loss_scale`, a tensor of
  /// its own.
  at::Tensor run(int number, const model::Microbatch& data, const model::ForwardOptions& options);

  /// Microbatches so far, by how they ran.
  struct Counts {
    int usual = 0, warm_ups = 0, captures = 0, replays = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Shape;
  Shape* shape_of(const model::Microbatch& data, model::Keep keep);

  Stage& stage_;
  std::unique_ptr<ops::WorkCapture> capture_;
  std::vector<std::unique_ptr<Shape>> shapes_;
  Counts counts_ = {};
};

}  // namespace automodel::pipeline
