#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros_like.h>

#include "config/optimizer_basics.h"
#include "ops/adam.h"
#include "ops/graph.h"

namespace automodel::optim {

Factors factors_of(const std::vector<config::ParamGroupOverride>& overrides, const std::string& name) {
  for (const auto& each : overrides)
    if (std::regex_search(name, std::regex(each.pattern()))) return {each.lr_mult(), each.wd_mult()};
  return {};
}

double clip_factor(double norm, double max_norm) {
  return std::min(1.0, max_norm / (norm + 1e-6));
}

Optimizer::Optimizer(const config::OptimizerConfig& config, std::vector<Target> targets)
    : targets_(std::move(targets)) {
  const auto read = [&](const auto& c) {
    beta1_ = c.betas()[0];
    beta2_ = c.betas()[1];
    eps_ = c.eps();
    amsgrad_ = c.amsgrad();
    maximize_ = c.maximize();
    decoupled_ = std::is_same_v<std::remove_cvref_t<decltype(c)>, config::AdamWConfig>;
  };
  std::visit(read, config);
  const auto overrides = config::basics_of(config).overrides;
  for (const auto& target : targets_) {
    const bool any = std::any_of(target.ranges.begin(), target.ranges.end(), [](const Range& r) { return r.trained; });
    Moments moments;
    if (any) {
      moments.mean = at::zeros_like(target.value);
      moments.square = at::zeros_like(target.value);
      if (amsgrad_) moments.largest = at::zeros_like(target.value);
    }
    moments_.push_back(std::move(moments));
    auto& pieces = pieces_.emplace_back();
    for (const auto& range : target.ranges) {
      if (!range.trained) continue;
      const auto factors =
          overrides.empty() ? Factors{} : factors_of(overrides, range.group.empty() ? range.name : range.group);
      const bool joins = !pieces.empty() && pieces.back().offset + pieces.back().length == range.offset &&
                         pieces.back().lr_factor == factors.lr && pieces.back().decay_factor == factors.weight_decay;
      if (joins)
        pieces.back().length += range.length;
      else
        pieces.push_back({range.offset, range.length, factors.lr, factors.weight_decay});
    }
  }
}

std::pair<double, double> Optimizer::square_sums() const {
  double dense = 0, expert = 0;
  for (const auto& target : targets_) {
    at::Tensor gradient;
    std::int64_t begin = 0, end = 0;  // neighbouring ranges are summed at once
    const auto add = [&] {
      if (end > begin) (target.expert ? expert : dense) += ops::sum_of_squares(gradient.narrow(0, begin, end - begin));
    };
    for (const auto& range : target.ranges) {
      if (!range.trained || !range.counted) continue;
      if (!gradient.defined()) gradient = target.gradient();
      if (range.offset != end) {
        add();
        begin = range.offset;
      }
      end = range.offset + range.length;
    }
    add();
  }
  return {dense, expert};
}

std::string Optimizer::not_finite() const {
  const ops::NoGraph guard;
  for (const auto& target : targets_)
    for (const auto& range : target.ranges)
      if (range.trained && !at::isfinite(target.gradient().narrow(0, range.offset, range.length)).all().item<bool>())
        return range.name;
  return "";
}

void Optimizer::step(double lr, double weight_decay, double gradient_scale) {
  const ops::NoGraph guard;
  ++steps_;
  ops::AdamStep step{.lr = lr,
                     .beta1 = beta1_,
                     .beta2 = beta2_,
                     .eps = eps_,
                     .weight_decay = weight_decay,
                     .correction1 = 1 - std::pow(beta1_, static_cast<double>(steps_)),
                     .correction2 = 1 - std::pow(beta2_, static_cast<double>(steps_)),
                     .gradient_scale = gradient_scale,
                     .decoupled = decoupled_,
                     .maximize = maximize_};
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (pieces_[i].empty()) continue;
    const auto gradient = targets_[i].gradient().to(targets_[i].value.scalar_type());
    for (const auto& piece : pieces_[i]) {
      const auto part = [&](const at::Tensor& t) { return t.defined() ? t.narrow(0, piece.offset, piece.length) : t; };
      step.lr = lr * piece.lr_factor;
      step.weight_decay = weight_decay * piece.decay_factor;
      ops::adam(part(targets_[i].value), part(gradient), part(moments_[i].mean), part(moments_[i].square),
                part(moments_[i].largest), step);
    }
  }
}

std::vector<std::string> Optimizer::state_names() const {
  std::vector<std::string> out = {"exp_avg", "exp_avg_sq"};
  if (amsgrad_) out.emplace_back("max_exp_avg_sq");
  return out;
}

std::vector<State> Optimizer::states(std::size_t index) const {
  const auto& moments = moments_[index];
  if (!moments.mean.defined()) return {};
  std::vector<State> out = {{"exp_avg", moments.mean}, {"exp_avg_sq", moments.square}};
  if (moments.largest.defined()) out.push_back({"max_exp_avg_sq", moments.largest});
  return out;
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < moments_.size(); ++i)
    for (const auto& state : states(i)) total += static_cast<std::int64_t>(state.tensor.nbytes());
  return total;
}

}  // namespace automodel::optim
