// Converts batches into the tensors that stages use.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "data/batch.h"
#include "data/feature_store.h"
#include "model/blocks.h"
#include "parallel/context/layout.h"
#include "pictures/processor.h"
#include "pipeline/pipeline.h"
#include "plan/training_plan.h"

namespace automodel::train {

/// What becomes of a batch's pictures.
struct PictureInput {
  bool wanted = true;  ///< false on ranks without the embedding, where only their places are of use
  /// Instead of their pixels: what a tower gave for them, in this type; null: pixels.
  const data::FeatureStore* features = nullptr;
  at::ScalarType type = at::kFloat;
};

/// The values of pictures, side by side, and their grids.
model::PictureValues picture_values(const std::vector<pictures::PicturePtr>& pictures,
                                    const pictures::Processor& processor, at::Device device,
                                    const PictureInput& input = {});

/// Splits a batch into microbatches of `rows` rows on `device`, with the tokens of context-parallel rank `place`.
/// `pictures`: how they stand in rows; null for a model without a tower.
std::vector<model::Microbatch> make_microbatches(const data::Batch& batch, int rows, at::Device device,
                                                 parallel::ContextPlace place = {},
                                                 const pictures::PictureTokens* pictures = nullptr,
                                                 const PictureInput& input = {});

/// Sums of what the head finds out about microbatches (model/loss_parts.h); 0 where no head is.
class PartSums {
 public:
  /// `plan` decides whether there is anything to find out.
  explicit PartSums(const plan::TrainingPlan& plan)
      : wanted_(plan.model->spec.classes > 0 || plan.teacher != nullptr) {}
  /// Before the pass: asks for the parts.
  void ask(std::vector<model::Microbatch>& microbatches) const;
  /// After it: adds them.
  void take(const std::vector<model::Microbatch>& microbatches);
  double hits() const { return hits_.value(); }
  double cross_entropy() const { return cross_entropy_.value(); }
  double divergence() const { return divergence_.value(); }

 private:
  bool wanted_;
  pipeline::LossSum hits_ = {}, cross_entropy_ = {}, divergence_ = {};
};

/// The seed of a step's dropout, and the position of the batch in the step.
struct DropoutPlace {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_row = 0;  ///< index of the batch's first row in the global batch
  parallel::ContextPlace context = {};
};
/// Sets the dropout draws of a batch's microbatches. A token draws the same numbers on every mesh.
void draw_dropout(std::vector<model::Microbatch>& microbatches, const DropoutPlace& place);

}  // namespace automodel::train
