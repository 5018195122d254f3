#include "plan/optimizer_choice.h"

#include <cmath>
#include <type_traits>

#include "base/expression.h"
#include "config/optimizer_basics.h"

namespace automodel::plan {
namespace {

AdamRule rule_of(const config::AdamFields& c, bool decoupled) {
  return {.beta1 = c.betas()[0],
          .beta2 = c.betas()[1],
          .eps = c.eps(),
          .decoupled = decoupled,
          .amsgrad = c.amsgrad(),
          .maximize = c.maximize()};
}
AdamRule rule_of(const config::AdamWConfig& c) {
  return rule_of(c, true);
}
AdamRule rule_of(const config::AdamConfig& c) {
  return rule_of(c, false);
}

SgdRule rule_of(const config::SgdConfig& c) {
  return {c.momentum(), c.dampening(), c.nesterov(), c.maximize()};
}

MuonRule rule_of(const config::MuonConfig& c) {
  const double rest = c.scalar_lr().value_or(c.lr());
  const auto factor = [&](double rate) { return c.lr() > 0 ? rate / c.lr() : 1; };  // lr 0: all rates are 0
  const bool matched = c.adjust_lr_fn() == config::MuonScale::kMatchRmsAdamW;
  return {.momentum = c.momentum(),
          .nesterov = c.nesterov(),
          .coefficients = std::vector(static_cast<std::size_t>(c.ns_steps()), c.ns_coefficients()),
          .eps = c.eps(),
          .scale = matched ? MatrixScale::kMatchRmsAdamW : MatrixScale::kOriginal,
          .rest = {.beta1 = c.scalar_betas()[0], .beta2 = c.scalar_betas()[1], .eps = c.scalar_eps()},
          .rest_factor = factor(rest),
          .embedding_factor = factor(c.embed_lr().value_or(rest)),
          .head_factor = factor(c.lm_head_lr().value_or(rest))};
}

/// dion.Muon at the version in NeMo AutoModel's lock file (7452a58), with NeMo AutoModel's parameter groups.
MuonRule rule_of(const config::DionMuonConfig& c, int hidden) {
  const double rest = c.scalar_lr().value_or(c.lr());
  const auto factor = [&](double rate) { return c.lr() > 0 ? rate / c.lr() : 1; };
  const auto scale = [&] {
    if (!c.adjust_lr()) return MatrixScale::kNone;
    return *c.adjust_lr() == config::DionScale::kRmsNorm ? MatrixScale::kMatchRmsAdamW : MatrixScale::kSpectralNorm;
  };
  return {.momentum = c.mu(),
          .summed = true,
          .nesterov = c.nesterov(),
          .coefficients = {{4.0848, -6.8946, 2.9270},
                           {3.9505, -6.3029, 2.6377},
                           {3.7418, -5.5913, 2.3037},
                           {2.8769, -3.1427, 1.2046},
                           {2.8366, -3.0525, 1.2012}},
          .eps = c.epsilon(),
          .eps_added = true,
          .scale = scale(),
          .rest = {.beta1 = c.scalar_betas()[0], .beta2 = c.scalar_betas()[1], .eps = c.scalar_eps()},
          .rest_factor = factor(rest),
          .embedding_factor = factor(c.embed_lr().value_or(rest)),
          .head_factor = factor(c.lm_head_lr().value_or(c.lr() / std::sqrt(static_cast<double>(hidden)))),
          .ends_decay = false};
}

}  // namespace

OptimizerPlan plan_optimizer(const config::OptimizerConfig& config, int hidden) {
  const auto types = config::types_of(config);
  OptimizerPlan out{.first_moment = types.first_moment, .second_moment = types.second_moment};
  std::visit(
      [&](const auto& c) {
        out.name = std::remove_cvref_t<decltype(c)>::targets[0];
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(c)>, config::DionMuonConfig>)
          out.rule = rule_of(c, hidden);
        else
          out.rule = rule_of(c);
      },
      config);
  for (const auto& each : config::basics_of(config).overrides)
    out.groups.push_back({each.pattern(), each.lr_mult(), each.wd_mult()});
  return out;
}

Factors factors_of(const std::vector<RateGroup>& groups, const std::string& name) {
  for (const auto& each : groups)
    if (const auto expression = Expression::read(each.pattern); expression && expression->found_in(name))
      return {each.lr, each.weight_decay};
  return {};
}

}  // namespace automodel::plan
