#include "config/optimizer_basics.h"

#include <variant>

#include <fmt/format.h>

#include "base/expression.h"

namespace automodel::config {

OptimizerBasics basics_of(const OptimizerConfig& config) {
  return std::visit(
      [](const auto& c) {
        return OptimizerBasics{c.lr(), c.weight_decay(), c.param_group_overrides()};
      },
      config);
}

OptimizerTypes types_of(const OptimizerConfig& config) {
  return std::visit(
      [](const auto& c) -> OptimizerTypes {
        if constexpr (requires { c.exp_avg_dtype(); })
          return {c.exp_avg_dtype(), c.exp_avg_sq_dtype(), c.main_grads_dtype(), c.main_params_dtype()};
        else
          return {};
      },
      config);
}

Diagnostics check_overrides(const std::vector<ParamGroupOverride>& overrides) {
  Diagnostics problems;
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    const std::string key = fmt::format("optimizer.param_group_overrides.{}.pattern", i);
    if (overrides[i].pattern().empty())
      problems.add("missing-key", key)
          .says("{} is empty", key)
          .hint("a regular expression for parameter names, for example 'norm|bias'");
    else if (!Expression::read(overrides[i].pattern()))
      problems.add("bad-value", key)
          .says("{} is not a regular expression: '{}'", key, overrides[i].pattern())
          .hint("write .* for any text; escape brackets and dots with a backslash");
  }
  return problems;
}

}  // namespace automodel::config
