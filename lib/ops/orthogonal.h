// Muon's arithmetic on one matrix.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

struct NewtonSchulz {
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};
  int steps = 5;
  double eps = 1e-7;  ///< smallest norm that is divided by
};

/// A matrix with the singular vectors of `matrix` [rows, columns] and singular values near 1, in bfloat16: a quintic
/// Newton-Schulz iteration, rounded after every product as torch.optim.Muon of PyTorch 2.11 rounds.
at::Tensor orthogonalised(const at::Tensor& matrix, const NewtonSchulz& iteration);

}  // namespace automodel::ops
