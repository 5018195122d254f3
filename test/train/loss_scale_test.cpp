#include "train/loss_scale.h"

#include <catch2/catch.hpp>

#include "data/sampler.h"

namespace automodel::train {
namespace {

/// Four rows of two tokens: label tokens 2, 1, 0, 0; the last row is padding of an epoch's last step.
data::Batch batch() {
  data::Batch out;
  out.rows = 4;
  out.length = 2;
  out.labels = {
      5, 6, 7, data::kIgnoredLabel, data::kIgnoredLabel, data::kIgnoredLabel, data::kIgnoredLabel, data::kIgnoredLabel};
  out.samples = {0, 1, 2, data::kNoSample};
  out.num_tokens = 6;
  out.num_label_tokens = 3;
  return out;
}

}  // namespace

TEST_CASE("the loss is the mean over the label tokens of the global batch", "[train]") {
  const auto mine = count_losses({batch(), batch()}, 1);
  CHECK(mine.tokens == 12);
  CHECK(mine.labels == 6);
  CHECK(mine.microbatches == 6);
  const LossScale scale({.labels = 12}, false, 1024);
  CHECK(scale.factors(batch(), 2) == std::vector<double>(2, 1.0 / 12));
  CHECK(scale.divisor() == 0);
  CHECK(scale.loss(0.5) == 0.5);
  CHECK(scale.backward() == 1024);
  CHECK(scale.unscale(2048) == 2);
}

TEST_CASE("with scale_grads_in_schedule the loss is the mean of the per-microbatch means", "[train]") {
  const LossScale scale({.labels = 12, .microbatches = 6}, true, 1);
  CHECK(scale.factors(batch(), 1) == std::vector<double>{0.5, 1, 1, 1});  // a row without labels is not divided
  CHECK(scale.factors(batch(), 2) == std::vector<double>{1.0 / 3, 1});
  CHECK(scale.divisor() == 6);
  CHECK(scale.loss(3) == 0.5);
}

TEST_CASE("a global batch without labels does not divide by zero", "[train]") {
  CHECK(LossScale({}, false, 1).factors(batch(), 4) == std::vector<double>{1});
  CHECK(LossScale({}, true, 1).divisor() == 1);
}

}  // namespace automodel::train
