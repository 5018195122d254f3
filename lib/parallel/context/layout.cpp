#include "parallel/context/layout.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include "base/error.h"

namespace automodel::parallel {

at::Tensor token_places(std::int64_t length, ContextPlace place, at::Device device) {
  const auto integers = at::TensorOptions().dtype(at::kLong).device(device);
  if (place.size == 1) return at::arange(length, integers);
  const std::int64_t chunks = 2 * std::int64_t{place.size}, chunk = length / chunks;
  AUTOMODEL_CHECK(length % chunks == 0, "a sequence does not divide among context-parallel ranks");
  const auto first = place.rank * chunk, second = (chunks - 1 - place.rank) * chunk;
  return at::cat({at::arange(first, first + chunk, integers), at::arange(second, second + chunk, integers)});
}

at::Tensor own_tokens(const at::Tensor& x, ContextPlace place) {
  return place.size == 1 ? x : x.index_select(1, token_places(x.size(1), place, x.device()));
}

}  // namespace automodel::parallel
