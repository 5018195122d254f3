#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "ops/adam.h"
#include "ops/graph.h"

namespace automodel::optim {

namespace {

constexpr std::int64_t kPart = 1 << 20;  ///< elements processed at a time, to bound temporaries

/// The tensor type for a type that a recipe requests (config::state_type), or `otherwise`.
at::ScalarType type_of(std::optional<DType> asked, at::ScalarType otherwise) {
  return !asked ? otherwise : *asked == DType::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

}  // namespace

double clip_factor(double norm, double max_norm) {
  return std::min(1.0, max_norm / (norm + 1e-6));
}

bool needs_whole_matrix(const plan::OptimizerPlan& plan, const arch::Parameter& parameter) {
  return plan.takes_matrices() && parameter.trained() && arch::is_hidden_matrix(parameter);
}

namespace {

double scale_of(plan::MatrixScale scale, double rows, double columns) {
  switch (scale) {
    case plan::MatrixScale::kOriginal: return std::sqrt(std::max(1.0, rows / columns));
    case plan::MatrixScale::kMatchRmsAdamW: return 0.2 * std::sqrt(std::max(rows, columns));
    case plan::MatrixScale::kSpectralNorm: return std::sqrt(rows / columns);
    case plan::MatrixScale::kNone: break;
  }
  return 1;
}

}  // namespace

Optimizer::Optimizer(plan::OptimizerPlan plan, std::vector<Target> targets)
    : plan_(std::move(plan)), targets_(std::move(targets)) {
  for (const auto& target : targets_) {
    add_pieces(target);
    add_states(target);
    exchanges_.push_back(target.matrices.empty() ? nullptr
                                                 : std::make_unique<MatrixExchange>(target.matrices, target.groups));
  }
}

double Optimizer::rate_factor(const Range& range) const {
  const auto* muon = std::get_if<plan::MuonRule>(&plan_.rule);
  if (muon == nullptr || range.matrix >= 0) return 1;
  return range.place == Place::kEmbedding ? muon->embedding_factor
         : range.place == Place::kHead    ? muon->head_factor
                                          : muon->rest_factor;
}

void Optimizer::add_pieces(const Target& target) {
  auto& pieces = pieces_.emplace_back();
  for (const auto& range : target.ranges) {
    if (!range.trained) continue;
    auto factors = plan_.groups.empty()
                       ? plan::Factors{}
                       : plan::factors_of(plan_.groups, range.group.empty() ? range.name : range.group);
    factors.lr *= rate_factor(range);
    const auto* muon = std::get_if<plan::MuonRule>(&plan_.rule);
    if (muon != nullptr && !muon->ends_decay && range.place != Place::kLayers) factors.weight_decay = 0;
    const bool joins = !pieces.empty() && pieces.back().offset + pieces.back().length == range.offset &&
                       pieces.back().lr_factor == factors.lr && pieces.back().decay_factor == factors.weight_decay &&
                       pieces.back().matrix == range.matrix && range.matrix < 0;
    if (joins)
      pieces.back().length += range.length;
    else
      pieces.push_back({range.offset, range.length, factors.lr, factors.weight_decay, range.matrix});
  }
}

void Optimizer::add_states(const Target& target) {
  auto& states = states_.emplace_back();
  const auto& pieces = pieces_.back();
  if (pieces.empty()) return;
  if (!plan_.takes_matrices()) {
    for (const auto& name : state_names())
      states.push_back({at::zeros_like(target.value, state_type(name, target.value.scalar_type()))});
    return;
  }
  states.push_back({at::zeros_like(target.value)});
  std::int64_t first = target.value.numel(), end = 0;
  for (const auto& piece : pieces) {
    if (piece.matrix >= 0) continue;
    first = std::min(first, piece.offset);
    end = std::max(end, piece.offset + piece.length);
  }
  if (first < end) states.push_back({at::zeros({end - first}, target.value.options()), first});
}

std::pair<double, double> Optimizer::square_sums() const {
  ops::SquareSums sums(2);
  for (const auto& target : targets_) {
    at::Tensor gradient;
    std::int64_t begin = 0, end = 0;  // adjacent ranges are summed together
    const auto add = [&] {
      if (end > begin) sums.add(target.expert ? 1 : 0, gradient.narrow(0, begin, end - begin));
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
  const auto totals = sums.totals();
  return {totals[0], totals[1]};
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
  if (const auto* adam = std::get_if<plan::AdamRule>(&plan_.rule))
    step_adam(*adam, lr, weight_decay, gradient_scale);
  else if (const auto* sgd = std::get_if<plan::SgdRule>(&plan_.rule))
    step_sgd(*sgd, lr, weight_decay, gradient_scale);
  else
    step_muon(std::get<plan::MuonRule>(plan_.rule), lr, weight_decay, gradient_scale);
}

template <class Update>
void Optimizer::for_pieces(const Update& update) {
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (pieces_[i].empty()) continue;
    const auto gradient = targets_[i].gradient();
    for (const auto& piece : pieces_[i]) {
      if (piece.matrix >= 0) continue;
      const auto part = [&](const at::Tensor& t) { return t.narrow(0, piece.offset, piece.length); };
      std::vector<at::Tensor> states;
      for (const auto& state : states_[i]) states.push_back(state.part(piece));
      update(part(targets_[i].value), part(gradient), states, piece);
    }
  }
}

void Optimizer::step_adam(const plan::AdamRule& rule, double lr, double weight_decay, double gradient_scale) {
  const ops::AdamStep step{.lr = lr,
                           .beta1 = rule.beta1,
                           .beta2 = rule.beta2,
                           .eps = rule.eps,
                           .weight_decay = weight_decay,
                           .correction1 = 1 - std::pow(rule.beta1, static_cast<double>(steps_)),
                           .correction2 = 1 - std::pow(rule.beta2, static_cast<double>(steps_)),
                           .gradient_scale = gradient_scale,
                           .decoupled = rule.decoupled,
                           .maximize = rule.maximize};
  std::vector<ops::AdamPiece> together;
  for_pieces([&](const at::Tensor& value, const at::Tensor& gradient, const std::vector<at::Tensor>& states,
                 const Piece& piece) {
    const double rate = lr * piece.lr_factor, decay = weight_decay * piece.decay_factor;
    const auto type = value.scalar_type();
    const auto kept_alike = [&](const at::Tensor& state) { return state.scalar_type() == type; };
    const auto third = [](const std::vector<at::Tensor>& all) { return all.size() > 2 ? all[2] : at::Tensor(); };
    if (std::all_of(states.begin(), states.end(), kept_alike)) {
      together.push_back({value, gradient, states[0], states[1], third(states), rate, decay});
      if (ops::computed_together(value)) return;
      ops::adam(together, step);
      return together.clear();
    }
    // Moments of another type are rounded once per step. Processed in parts, to bound temporaries.
    for (std::int64_t at = 0; at < piece.length; at += kPart) {
      const auto part = [&](const at::Tensor& t) { return t.narrow(0, at, std::min(kPart, piece.length - at)); };
      std::vector<at::Tensor> wide;
      for (const auto& state : states) wide.push_back(part(state).to(type));
      ops::adam({{part(value), part(gradient), wide[0], wide[1], third(wide), rate, decay}}, step);
      for (std::size_t i = 0; i < states.size(); ++i)
        if (!kept_alike(states[i])) part(states[i]).copy_(wide[i]);
    }
  });
  ops::adam(together, step);
}

/// torch.optim.SGD: the momentum buffer starts as the first gradient, undamped. Processed in parts, to bound
/// temporaries.
void Optimizer::step_sgd(const plan::SgdRule& rule, double lr, double weight_decay, double gradient_scale) {
  const double sign = rule.maximize ? -1 : 1;
  for_pieces([&](const at::Tensor& value, const at::Tensor& gradient, const std::vector<at::Tensor>& states,
                 const Piece& piece) {
    for (std::int64_t at = 0; at < piece.length; at += kPart) {
      const auto part = [&](const at::Tensor& t) { return t.narrow(0, at, std::min(kPart, piece.length - at)); };
      auto weights = part(value);
      auto update = part(gradient).to(value.scalar_type()) * (sign * gradient_scale);
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

/// torch.optim.Muon of PyTorch 2.11 or dion.Muon for the matrices, AdamW for the rest.
void Optimizer::step_muon(const plan::MuonRule& rule, double lr, double weight_decay, double gradient_scale) {
  step_adam(rule.rest, lr, weight_decay, gradient_scale);
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (!exchanges_[i]) continue;
    const auto& value = targets_[i].value;
    const auto gradient = targets_[i].gradient();
    const auto update = at::zeros({value.numel()}, value.options().dtype(at::kBFloat16));
    const auto part = [](const at::Tensor& t, const Piece& piece) { return t.narrow(0, piece.offset, piece.length); };
    for (const auto& piece : pieces_[i]) {
      if (piece.matrix < 0) continue;
      const auto g = part(gradient, piece).to(value.scalar_type()).mul(gradient_scale);
      auto momentum = states_[i][0].part(piece);
      if (rule.summed) {
        momentum.mul_(rule.momentum).add_(g);
        part(update, piece).copy_(rule.nesterov ? g.add(momentum, rule.momentum) : momentum);
        continue;
      }
      momentum.lerp_(g, 1 - rule.momentum);
      part(update, piece).copy_(rule.nesterov ? g.lerp(momentum, rule.momentum) : momentum);
    }
    const auto there = update.to(targets_[i].groups.device);  // masters may be offloaded
    exchanges_[i]->run(there, [&](const at::Tensor& matrix) {
      return ops::orthogonalised(matrix, {rule.coefficients, rule.eps, rule.eps_added});
    });
    if (!there.is_same(update)) update.copy_(there);
    for (const auto& piece : pieces_[i]) {
      if (piece.matrix < 0) continue;
      const auto& shape = exchanges_[i]->matrices()[static_cast<std::size_t>(piece.matrix)].shape;
      const auto rows = static_cast<double>(shape.end()[-2]), columns = static_cast<double>(shape.back());
      const double scale = scale_of(rule.scale, rows, columns);
      const double rate = lr * piece.lr_factor;
      part(value, piece).mul_(1 - rate * weight_decay * piece.decay_factor).add_(part(update, piece), -rate * scale);
    }
  }
}

std::vector<std::string> Optimizer::state_names(bool whole) const {
  if (const auto* sgd = std::get_if<plan::SgdRule>(&plan_.rule))
    return sgd->momentum > 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
  if (plan_.takes_matrices() && whole) return {"momentum_buffer"};
  std::vector<std::string> out = {"exp_avg", "exp_avg_sq"};
  if (const auto* adam = std::get_if<plan::AdamRule>(&plan_.rule); adam != nullptr && adam->amsgrad)
    out.emplace_back("max_exp_avg_sq");
  return out;
}

at::ScalarType Optimizer::state_type(std::string_view name, at::ScalarType master) const {
  if (name == "exp_avg") return type_of(plan_.first_moment, master);
  return name == "exp_avg_sq" || name == "max_exp_avg_sq" ? type_of(plan_.second_moment, master) : master;
}

std::vector<State> Optimizer::states(std::size_t index) const {
  std::vector<State> out;
  const auto names = state_names();
  const bool muon = plan_.takes_matrices();
  for (std::size_t i = 0; i < states_[index].size(); ++i) {
    const auto& [tensor, first] = states_[index][i];
    if (muon && i == 0) out.push_back({state_names(true)[0], tensor, first, State::Of::kMatrices});
    out.push_back({names[i], tensor, first, muon ? State::Of::kRest : State::Of::kAll});
  }
  return out;
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t total = 0;
  for (const auto& target : states_)
    for (const auto& state : target) total += static_cast<std::int64_t>(state.tensor.nbytes());
  return total;
}

}  // namespace automodel::optim
