// Batches as stages take them.
#include "train/microbatches.h"

#include <set>

#include <catch2/catch.hpp>

#include <ATen/ops/zeros.h>

namespace automodel::train {
namespace {

/// The numbers of the tokens that draw at `place`, of its step and seed.
std::vector<std::int64_t> tokens_drawn(const DropoutPlace& place) {
  std::vector<model::Microbatch> microbatches(2);
  for (auto& microbatch : microbatches) {
    microbatch.ids = at::zeros({2, 5}, at::kLong);
    microbatch.length = 5;
  }
  draw_dropout(microbatches, place);
  std::vector<std::int64_t> out;
  for (const auto& microbatch : microbatches) {
    CHECK(microbatch.draw->seed == place.seed);
    CHECK(microbatch.draw->step == place.step);  // another step drops others
    out.insert(out.end(), microbatch.draw->tokens.begin(), microbatch.draw->tokens.end());
  }
  return out;
}

}  // namespace

TEST_CASE("every token of a global batch draws its own dropout numbers") {
  // Four rows of five tokens in two microbatches on this rank, then the next four rows of the step on another.
  auto drawn = tokens_drawn({.seed = 1, .step = 3, .first_row = 0});
  const auto others = tokens_drawn({.seed = 1, .step = 3, .first_row = 4});
  drawn.insert(drawn.end(), others.begin(), others.end());
  CHECK(drawn.size() == 40);
  CHECK(std::set<std::int64_t>(drawn.begin(), drawn.end()).size() == 40);
}

}  // namespace automodel::train
