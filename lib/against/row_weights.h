// Gradients as weighted sums of the rows' gradients: which weights explain a dump.
#pragma once

#include <optional>
#include <vector>

#include "against/finding.h"

namespace automodel::against {

/// The weight of each row, 1 where it counts as it should, that together come nearest to the dump (least squares over
/// all tensors). Rows without labels have 1. Empty if there are no rows, or more than can be told apart.
std::vector<double> row_weights(const Evidence& evidence);

/// Mean of means, or rows that do not contribute; empty if neither predicts the dump.
std::optional<Finding> explain_by_rows(const Evidence& evidence);

/// The loss as a mean of the means of contiguous microbatches, where that equals the dump's: their number.
std::optional<std::int64_t> loss_of_means(const Evidence& evidence);

}  // namespace automodel::against
