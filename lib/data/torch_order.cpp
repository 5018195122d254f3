#include "data/torch_order.h"

#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "base/error.h"

namespace automodel::data {

std::vector<std::uint32_t> torch_permutation(std::uint64_t seed, std::int64_t n) {
  AUTOMODEL_CHECK(n >= 0 && n < std::numeric_limits<std::uint32_t>::max() / 20, "a draw of 32 bits is enough");
  std::mt19937 draw(static_cast<std::uint32_t>(seed));
  std::vector<std::uint32_t> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), 0U);
  for (std::size_t i = 0; i + 1 < out.size(); ++i) std::swap(out[i], out[i + draw() % (out.size() - i)]);
  return out;
}

}  // namespace automodel::data
