// The loss of a student: cross-entropy with labels, and divergence from a teacher.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/linear_cross_entropy.h"

namespace automodel::ops {

/// Sums over rows, without a scale; float64, one element.
struct LessonSums {
  at::Tensor cross_entropy = {};  ///< 0 where the ratio is 1
  at::Tensor divergence = {};     ///< times the temperature squared
};

/// Of logits and the teacher's logits [rows, share of the vocabulary with padding] (HeadLoss::first, columns, gather).
/// With `gradient`, logits are overwritten by the gradient of (1 - ratio) cross-entropy + ratio divergence, times
/// `scale`; that of padding is 0. Computed in float32 or better. Source of the formula: NeMo AutoModel, KDLoss; Hinton
/// et al. 2015.
LessonSums lesson_loss(at::Tensor logits, const at::Tensor& teacher, const at::Tensor& labels, const HeadLoss& loss,
                       const Factor& scale, bool gradient);

}  // namespace automodel::ops
