#include "optim/loss_scaler.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "golden_file.h"

namespace automodel::optim {
namespace {

TEST_CASE("the dynamic loss scale equals Megatron Core's at every step") {
  int steps = 0;
  for (const auto& row : golden::load("megatron/loss_scaler.json")) {
    if (!row.contains("trace")) continue;  // settings that Megatron Core refuses
    const auto& in = row["input"];
    LossScaler scaler({.initial = in["initial_scale"],
                       .least = in["min_scale"],
                       .growth = in["growth_factor"],
                       .backoff = in["backoff_factor"],
                       .window = in["growth_interval"],
                       .hysteresis = in["hysteresis"]});
    for (std::size_t i = 0; i < row["trace"].size(); ++i) {
      const auto& expected = row["trace"][i];
      if (!expected[0].is_number() || !std::isfinite(expected[0].get<double>())) break;  // ours stays finite
      scaler.update(in["found_inf"][i].get<int>() != 0);
      INFO(in.dump() << " step " << i);
      REQUIRE(static_cast<double>(scaler.scale()) == expected[0].get<double>());
      REQUIRE(scaler.growth_steps() == expected[1].get<int>());
      REQUIRE(scaler.hysteresis() == expected[2].get<int>());
      ++steps;
    }
  }
  CHECK(steps > 400);
}

TEST_CASE("the loss scale never becomes infinite") {
  LossScaler scaler({.window = 1});
  for (int i = 0; i < 200; ++i) scaler.update(false);
  CHECK(std::isfinite(scaler.scale()));
  CHECK(scaler.scale() > 1e38F);
}

}  // namespace
}  // namespace automodel::optim
