// SGD against torch.optim.SGD's formulas, written out for one element at a time (torch/optim/sgd.py,
// _single_tensor_sgd).
#include <cmath>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "config/recipe.h"
#include "optim/optimizer.h"
#include "plan/optimizer_choice.h"
#include "torch_catch.h"

namespace automodel::optim {
namespace {

struct Setting {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
};

config::SgdConfig config_of(const Setting& s) {
  config::SgdConfig out;
  out.momentum = s.momentum;
  out.dampening = s.dampening;
  out.nesterov = s.nesterov;
  out.maximize = s.maximize;
  return out;
}

/// One element as PyTorch computes it.
struct Element {
  double value, buffer = 0;
  bool begun = false;
  void step(const Setting& s, double gradient, double lr) {
    double d = s.maximize ? -gradient : gradient;
    if (s.weight_decay != 0) d += s.weight_decay * value;
    if (s.momentum != 0) {
      buffer = begun ? s.momentum * buffer + (1 - s.dampening) * d : d;
      begun = true;
      d = s.nesterov ? d + s.momentum * buffer : buffer;
    }
    value -= lr * d;
  }
};

double gradient_of(std::int64_t i, int step) {
  return std::sin(static_cast<double>(i) + 3.0 * step);
}

}  // namespace

TEST_CASE("clipping scales a gradient down to the largest norm, and never up", "[optim]") {
  CHECK(clip_factor(0.25, 1.0) == 1);
  CHECK(clip_factor(0.0, 1.0) == 1);
  CHECK(clip_factor(4.0, 1.0) == Approx(0.25).epsilon(1e-6));
}

TEST_CASE("SGD equals PyTorch's, in one shard or several and after a resume", "[optim]") {
  const std::vector<Setting> settings = {{},
                                         {.weight_decay = 0.1},
                                         {.momentum = 0.9},
                                         {.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.05},
                                         {.momentum = 0.8, .weight_decay = 0.05, .nesterov = true},
                                         {.momentum = 0.5, .maximize = true}};
  constexpr std::int64_t kLength = 37;
  for (const auto& setting : settings)
    for (const std::int64_t cut : {kLength, std::int64_t{13}}) {
      INFO("momentum " << setting.momentum << ", nesterov " << setting.nesterov << ", cut at " << cut);
      auto value = at::empty({kLength}, at::kDouble), gradient = at::zeros({kLength}, at::kDouble);
      std::vector<Element> expected;
      for (std::int64_t i = 0; i < kLength; ++i) {
        expected.push_back({std::cos(static_cast<double>(i))});
        value.mutable_data_ptr<double>()[i] = expected.back().value;
      }
      const auto make = [&] {
        std::vector<Target> targets;
        for (const auto& [first, length] : {std::pair(std::int64_t{0}, cut), std::pair(cut, kLength - cut)}) {
          if (length == 0) continue;
          Target target{.value = value.narrow(0, first, length)};
          target.gradient = [part = gradient.narrow(0, first, length)] { return part; };
          target.ranges.push_back({.name = "w", .first = first, .offset = 0, .length = length});
          targets.push_back(std::move(target));
        }
        return Optimizer(plan::plan_optimizer(config_of(setting)), std::move(targets));
      };
      auto optimizer = make();
      CHECK(optimizer.state_bytes() == (setting.momentum > 0 ? kLength * 8 : 0));
      for (int step = 0; step < 6; ++step) {
        if (step == 3) {  // restored as from a checkpoint
          auto again = make();
          for (std::size_t i = 0; i < optimizer.targets().size(); ++i) {
            const auto from = optimizer.states(i), to = again.states(i);
            for (std::size_t k = 0; k < from.size(); ++k) to[k].tensor.copy_(from[k].tensor);
          }
          again.set_steps(optimizer.steps());
          optimizer = std::move(again);
        }
        for (std::int64_t i = 0; i < kLength; ++i) gradient.mutable_data_ptr<double>()[i] = 2 * gradient_of(i, step);
        optimizer.step(0.1, setting.weight_decay, 0.5);
        for (std::int64_t i = 0; i < kLength; ++i)
          expected[static_cast<std::size_t>(i)].step(setting, gradient_of(i, step), 0.1);
      }
      for (std::int64_t i = 0; i < kLength; ++i)
        CHECK(value.const_data_ptr<double>()[i] ==
              Approx(expected[static_cast<std::size_t>(i)].value).epsilon(1e-14).margin(1e-14));
    }
}

}  // namespace automodel::optim
