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
    using Config = std::remove_cvref_t<decltype(c)>;
    if constexpr (std::is_same_v<Config, config::SgdConfig>)
      rule_ = Sgd{c.momentum(), c.dampening(), c.nesterov(), c.maximize()};
    else
      rule_ = Adam{.beta1 = c.betas()[0],
                   .beta2 = c.betas()[1],
                   .eps = c.eps(),
                   .decoupled = std::is_same_v<Config, config::AdamWConfig>,
                   .amsgrad = c.amsgrad(),
                   .maximize = c.maximize()};
  };
  std::visit(read, config);
  const auto overrides = config::basics_of(config).overrides;
  const auto count = state_names().size();
  for (const auto& target : targets_) {
    const bool any = std::any_of(target.ranges.begin(), target.ranges.end(), [](const Range& r) { return r.trained; });
    auto& states = states_.emplace_back();
    for (std::size_t i = 0; any && i < count; ++i) states.push_back(at::zeros_like(target.value));
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
  if (const auto* adam = std::get_if<Adam>(&rule_))
    step_adam(*adam, lr, weight_decay, gradient_scale);
  else
    step_sgd(std::get<Sgd>(rule_), lr, weight_decay, gradient_scale);
}

template <class Update>
void Optimizer::for_pieces(const Update& update) {
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (pieces_[i].empty()) continue;
    const auto gradient = targets_[i].gradient().to(targets_[i].value.scalar_type());
    for (const auto& piece : pieces_[i]) {
      const auto part = [&](const at::Tensor& t) { return t.narrow(0, piece.offset, piece.length); };
      std::vector<at::Tensor> states;
      for (const auto& state : states_[i]) states.push_back(part(state));
      update(part(targets_[i].value), part(gradient), states, piece);
    }
  }
}

void Optimizer::step_adam(const Adam& rule, double lr, double weight_decay, double gradient_scale) {
  ops::AdamStep step{.lr = lr,
                     .beta1 = rule.beta1,
                     .beta2 = rule.beta2,
                     .eps = rule.eps,
                     .weight_decay = weight_decay,
                     .correction1 = 1 - std::pow(rule.beta1, static_cast<double>(steps_)),
                     .correction2 = 1 - std::pow(rule.beta2, static_cast<double>(steps_)),
                     .gradient_scale = gradient_scale,
                     .decoupled = rule.decoupled,
                     .maximize = rule.maximize};
  for_pieces([&](const at::Tensor& value, const at::Tensor& gradient, const std::vector<at::Tensor>& states,
                 const Piece& piece) {
    step.lr = lr * piece.lr_factor;
    step.weight_decay = weight_decay * piece.decay_factor;
    ops::adam(value, gradient, states[0], states[1], states.size() > 2 ? states[2] : at::Tensor(), step);
  });
}

/// torch.optim.SGD: the buffer begins as the first gradient, undamped. In parts, so that what is computed on the way
/// stays small.
void Optimizer::step_sgd(const Sgd& rule, double lr, double weight_decay, double gradient_scale) {
  constexpr std::int64_t kPart = 1 << 20;
  const double sign = rule.maximize ? -1 : 1;
  for_pieces([&](const at::Tensor& value, const at::Tensor& gradient, const std::vector<at::Tensor>& states,
                 const Piece& piece) {
    for (std::int64_t at = 0; at < piece.length; at += kPart) {
      const auto part = [&](const at::Tensor& t) { return t.narrow(0, at, std::min(kPart, piece.length - at)); };
      auto weights = part(value);
      auto update = part(gradient) * (sign * gradient_scale);
      if (const double decay = weight_decay * piece.decay_factor; decay != 0) update.add_(weights, decay);
      if (!states.empty()) {
        auto buffer = part(states[0]);
        if (steps_ == 1)
          buffer.copy_(update);
        else
          buffer.mul_(rule.momentum).add_(update, 1 - rule.dampening);
        if (rule.nesterov)
          update.add_(buffer, rule.momentum);
        else
          update = buffer;
      }
      weights.add_(update, -lr * piece.lr_factor);
    }
  });
}

std::vector<std::string> Optimizer::state_names() const {
  if (const auto* sgd = std::get_if<Sgd>(&rule_))
    return sgd->momentum > 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
  std::vector<std::string> out = {"exp_avg", "exp_avg_sq"};
  if (std::get<Adam>(rule_).amsgrad) out.emplace_back("max_exp_avg_sq");
  return out;
}

std::vector<State> Optimizer::states(std::size_t index) const {
  const auto names = state_names();
  std::vector<State> out;
  for (std::size_t i = 0; i < states_[index].size(); ++i) out.push_back({names[i], states_[index][i]});
  return out;
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < states_.size(); ++i)
    for (const auto& state : states(i)) total += static_cast<std::int64_t>(state.tensor.nbytes());
  return total;
}

}  // namespace automodel::optim
