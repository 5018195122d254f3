#include "train/bad_steps.h"

#include <algorithm>

#include <fmt/format.h>

namespace automodel::train {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

std::optional<BadStep> BadStepRule::judge(double loss, double grad_norm, bool finite) {
  BadStep out;
  const auto& spike = config_.loss_spike();
  const auto window = static_cast<std::size_t>(spike ? spike->window() : 0);
  if (!finite) {
    out = {config_.on_non_finite(), false, fmt::format("loss {}, gradient norm {}", loss, grad_norm)};
  } else if (spike && recent_.size() >= window && loss > spike->factor() * median(recent())) {
    out = {spike->action(), true,
           fmt::format("loss {:.4f} is {:.1f} times the median of the last {} steps", loss, loss / median(recent()),
                       window)};
  } else {
    in_a_row_ = 0;
    if (spike) recent_.push_back(loss);
    while (recent_.size() > window) recent_.pop_front();
    return std::nullopt;
  }
  if (++in_a_row_ > config_.max_bad_steps()) {
    out.action = config::BadStepAction::kStop;
    out.reason += fmt::format("; the {} steps before were bad as well (fault_tolerance.max_bad_steps)", in_a_row_ - 1);
  }
  return out;
}

void BadStepRule::restore(const std::vector<double>& recent) {
  recent_.assign(recent.begin(), recent.end());
}

}  // namespace automodel::train
