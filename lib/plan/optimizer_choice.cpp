#include "plan/optimizer_choice.h"

#include <regex>
#include <type_traits>

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
  const auto factor = [&](double rate) { return c.lr() > 0 ? rate / c.lr() : 1; };  // the schedule's rate is 0 then
  const bool matched = c.adjust_lr_fn() == config::MuonScale::kMatchRmsAdamW;
  return {.momentum = c.momentum(),
          .nesterov = c.nesterov(),
          .coefficients = c.ns_coefficients(),
          .iterations = c.ns_steps(),
          .eps = c.eps(),
          .scale = matched ? MatrixScale::kMatchRmsAdamW : MatrixScale::kOriginal,
          .rest = {.beta1 = c.scalar_betas()[0], .beta2 = c.scalar_betas()[1], .eps = c.scalar_eps()},
          .rest_factor = factor(rest),
          .embedding_factor = factor(c.embed_lr().value_or(rest)),
          .head_factor = factor(c.lm_head_lr().value_or(rest))};
}

}  // namespace

OptimizerPlan plan_optimizer(const config::OptimizerConfig& config) {
  const auto types = config::types_of(config);
  OptimizerPlan out{.first_moment = types.first_moment, .second_moment = types.second_moment};
  std::visit(
      [&](const auto& c) {
        out.name = std::remove_cvref_t<decltype(c)>::targets[0];
        out.rule = rule_of(c);
      },
      config);
  for (const auto& each : config::basics_of(config).overrides)
    out.groups.push_back({each.pattern(), each.lr_mult(), each.wd_mult()});
  return out;
}

Factors factors_of(const std::vector<RateGroup>& groups, const std::string& name) {
  for (const auto& each : groups)
    if (std::regex_search(name, std::regex(each.pattern))) return {each.lr, each.weight_decay};
  return {};
}

}  // namespace automodel::plan
