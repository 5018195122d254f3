// Adam with bfloat16 moments against its formulas, with rounding where moments are stored.
#include <cmath>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>

#include "optim/optimizer.h"
#include "plan/optimizer_choice.h"
#include "torch_catch.h"

namespace automodel::optim {
namespace {

double kept(double value, bool low) {
  return low ? static_cast<double>(static_cast<float>(c10::BFloat16(static_cast<float>(value)))) : value;
}

}  // namespace

TEST_CASE("Adam's moments are rounded once per step to the types in the recipe", "[optim]") {
  constexpr std::int64_t kLength = 41;
  constexpr double kRate = 0.01;
  for (const bool first : {false, true})
    for (const bool second : {false, true})
      for (const bool amsgrad : {false, true}) {
        INFO("first " << first << ", second " << second << ", amsgrad " << amsgrad);
        config::AdamWConfig config;
        config.amsgrad = amsgrad;
        if (first) config.exp_avg_dtype = DType::kBFloat16;
        if (second) config.exp_avg_sq_dtype = DType::kBFloat16;
        auto gradient = at::zeros({kLength}, at::kFloat);
        Target target{.value = at::zeros({kLength}, at::kFloat), .gradient = [&] { return gradient; }};
        target.ranges = {{.name = "a", .length = 20}, {.name = "b", .offset = 20, .length = kLength - 20}};
        Optimizer optimizer(plan::plan_optimizer(config), {target});
        const auto state_bytes = (first ? 2 : 4) + (second ? 2 : 4) * (amsgrad ? 2 : 1);
        CHECK(optimizer.state_bytes() == kLength * state_bytes);
        CHECK(optimizer.state_type("exp_avg", at::kFloat) == (first ? at::kBFloat16 : at::kFloat));
        std::vector<double> value(kLength), mean(kLength), square(kLength), largest(kLength);
        for (int step = 1; step <= 5; ++step) {
          for (std::int64_t i = 0; i < kLength; ++i)
            gradient.mutable_data_ptr<float>()[i] = static_cast<float>(std::sin(static_cast<double>(3 * i + step)));
          optimizer.step(kRate, 0.1, 1);
          for (std::size_t i = 0; i < kLength; ++i) {
            const double g = gradient.const_data_ptr<float>()[i];
            mean[i] = 0.9 * mean[i] + 0.1 * g;
            square[i] = 0.999 * square[i] + 0.001 * g * g;
            largest[i] = std::max(largest[i], square[i]);
            const double root = std::sqrt((amsgrad ? largest[i] : square[i]) / (1 - std::pow(0.999, step)));
            value[i] = value[i] * (1 - kRate * 0.1) - kRate / (1 - std::pow(0.9, step)) * mean[i] / (root + 1e-8);
            mean[i] = kept(mean[i], first);
            square[i] = kept(square[i], second);
            largest[i] = kept(largest[i], second);
          }
        }
        // Where float32 and float64 round to different neighbours, a moment differs by one bfloat16 unit, 2^-8, in one
        // of five steps, and one update by no more than that.
        const double tolerance = first || second ? kRate / 256 : 1e-5 * kRate * 5;
        for (std::size_t i = 0; i < kLength; ++i)
          CHECK(target.value.const_data_ptr<float>()[i] == Approx(value[i]).margin(tolerance));
      }
}

}  // namespace automodel::optim
