// The plan, with estimates, of a recipe that must be plannable.
#pragma once

#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "estimate/estimated_plan.h"

namespace automodel::test {

inline estimate::EstimatedPlan planned(const std::string& text, const estimate::PlanRequest& request = {}) {
  const auto loaded = config::read_recipe(text, "recipe.yaml", {}, {});
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  auto result = estimate::make_plan(loaded, request);
  INFO(to_text(result.problems));
  REQUIRE(result.plan);
  REQUIRE(result.plan->estimate);
  return std::move(*result.plan);
}

}  // namespace automodel::test
