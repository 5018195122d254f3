// Muon's arithmetic on one matrix.
#pragma once

#include <array>
#include <vector>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

struct NewtonSchulz {
  std::vector<std::array<double, 3>> coefficients = {};  ///< {a, b, c} of a x + (b G + c G^2) x with G = x x^T; one
                                                         ///< entry per step
  double eps = 1e-7;                                     ///< guards the division by the norm
  bool eps_added = false;                                ///< eps is added to the norm; else it is a lower bound of
                                                         ///< the norm
};

/// A matrix with the singular vectors of `matrix` [rows, columns] and singular values near 1, in bfloat16: a quintic
/// Newton-Schulz iteration, rounded after every matmul as torch.optim.Muon of PyTorch 2.11 does.
at::Tensor orthogonalised(const at::Tensor& matrix, const NewtonSchulz& iteration);

}  // namespace automodel::ops
