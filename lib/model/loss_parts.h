// What the head finds out about a microbatch beside its loss, and what it learns from beside labels.
#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::model {

class StageModel;

/// Filled in by the stage that has the head: one-element float64 tensors on its device.
struct LossParts {
  at::Tensor hits = {};           ///< of a classifier: label tokens whose best-scored class is their label
  at::Tensor cross_entropy = {};  ///< of a student: the two parts of the loss, scaled as the loss is
  at::Tensor divergence = {};
};

/// A teacher's last stage, and what its head gets for this microbatch: [batch, tokens, teacher's width].
struct TeacherHead {
  StageModel* stage = nullptr;
  at::Tensor input = {};
};

}  // namespace automodel::model
