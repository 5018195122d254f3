#include "ops/orthogonal.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "ops/graph.h"

namespace automodel::ops {

at::Tensor orthogonalised(const at::Tensor& matrix, const NewtonSchulz& iteration) {
  const NoGraph guard;
  const bool tall = matrix.size(0) > matrix.size(1);
  const auto [a, b, c] = iteration.coefficients;
  auto x = matrix.to(at::kBFloat16);
  if (tall) x = x.t();
  x = x.div(x.norm().clamp_min(iteration.eps));
  for (int step = 0; step < iteration.steps; ++step) {
    const auto gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return tall ? x.t() : x;
}

}  // namespace automodel::ops
