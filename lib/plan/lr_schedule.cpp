#include "plan/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "config/type_table.h"

template const automodel::config::TypeInfo& automodel::config::type_of<automodel::plan::LrSettings>();

namespace automodel::plan {
namespace {

using config::DecayStyle;
using config::WeightDecayStyle;
using config::WsdDecayStyle;

double half_cosine(double ratio) {
  return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0);
}

/// Remaining fraction of max - min after fraction `ratio` of the final decay.
double wsd_coefficient(WsdDecayStyle style, double ratio) {
  switch (style) {
    case WsdDecayStyle::kLinear: return 1.0 - ratio;
    case WsdDecayStyle::kCosine: return half_cosine(ratio);
    case WsdDecayStyle::kExponential: return 2.0 * std::pow(0.5, ratio) - 1.0;
    case WsdDecayStyle::kMinusSqrt: return 1.0 - std::sqrt(ratio);
  }
  return 0.0;
}

/// Remaining fraction of max - min at step n, warm-up < n <= decay end, for the styles that go from max to min.
double decay_coefficient(const LrSettings& s, std::int64_t n) {
  const auto after_warmup = static_cast<double>(n - s.lr_warmup_steps());
  const double ratio = after_warmup / static_cast<double>(s.lr_decay_steps() - s.lr_warmup_steps());
  switch (s.lr_decay_style()) {
    case DecayStyle::kLinear: return 1.0 - ratio;
    case DecayStyle::kCosine: return half_cosine(ratio);
    case DecayStyle::kWsd: {
      const std::int64_t start = s.lr_decay_steps() - *s.wsd_decay_steps();
      if (n <= start) return 1.0;
      return wsd_coefficient(*s.lr_wsd_decay_style(),
                             static_cast<double>(n - start) / static_cast<double>(*s.wsd_decay_steps()));
    }
    case DecayStyle::kConstant:
    case DecayStyle::kInverseSquareRoot: break;
  }
  return 1.0;
}

void check_rates(const LrSettings& s, Diagnostics& problems) {
  const std::pair<std::string_view, double> all[] = {{"init_lr", s.init_lr()},
                                                     {"max_lr", s.max_lr()},
                                                     {"min_lr", s.min_lr()},
                                                     {"start_wd", s.start_wd()},
                                                     {"end_wd", s.end_wd()}};
  for (const auto& [key, value] : all)
    if (!std::isfinite(value) || value < 0)
      problems.add("bad-value", "lr_scheduler." + std::string(key))
          .says("{} is {}", key, value)
          .hint("rates must be finite and at least 0");
  if (s.min_lr() > s.max_lr())
    problems.add("bad-value", "lr_scheduler.min_lr")
        .says("min_lr {} is above max_lr {}", s.min_lr(), s.max_lr())
        .hint("min_lr must be at most {}; if not set, it is a hundredth of optimizer.lr", s.max_lr());
  if (s.init_lr() > s.max_lr())
    problems.add("bad-value", "lr_scheduler.init_lr")
        .says("init_lr {} is above max_lr {}", s.init_lr(), s.max_lr())
        .hint("init_lr must be at most {}; if not set, it is a tenth of optimizer.lr", s.max_lr());
}

void check_decay(const LrSettings& s, Diagnostics& problems) {
  if (s.lr_warmup_steps() >= s.lr_decay_steps())
    problems.add("bad-value", "lr_scheduler.lr_warmup_steps")
        .says("warm-up of {} steps does not end before the decay does, at step {}", s.lr_warmup_steps(),
              s.lr_decay_steps())
        .hint(
            "lr_warmup_steps must be at most {} (lr_decay_steps, by default the number of steps of "
            "the run, less 1); if not set, it is a tenth of the run's steps, at most 1000",
            s.lr_decay_steps() - 1);
  if (s.lr_decay_style() != DecayStyle::kWsd) return;
  if (!s.wsd_decay_steps())
    problems.add("bad-value", "lr_scheduler.wsd_decay_steps")
        .says("lr_decay_style WSD needs wsd_decay_steps")
        .hint("give the length of the final decay, for example {}", std::max<std::int64_t>(1, s.lr_decay_steps() / 10));
  if (!s.lr_wsd_decay_style())
    problems.add("bad-value", "lr_scheduler.lr_wsd_decay_style")
        .says("lr_decay_style WSD needs lr_wsd_decay_style")
        .hint("one of linear, cosine, exponential, minus_sqrt");
}

void check_weight_decay(const LrSettings& s, Diagnostics& problems) {
  if (s.end_wd() < s.start_wd())
    problems.add("bad-value", "lr_scheduler.end_wd")
        .says("end_wd {} is below start_wd {}", s.end_wd(), s.start_wd())
        .hint("weight decay can only increase: end_wd must be at least {}", s.start_wd());
  else if (s.wd_incr_style() == WeightDecayStyle::kConstant && s.start_wd() != s.end_wd())
    problems.add("bad-value", "lr_scheduler.wd_incr_style")
        .says("start_wd {} and end_wd {} differ, but wd_incr_style is constant", s.start_wd(), s.end_wd())
        .hint("choose linear or cosine, or make the two equal");
  if (s.wd_incr_style() != WeightDecayStyle::kConstant && s.wd_incr_steps() < 1)
    problems.add("bad-value", "lr_scheduler.wd_incr_steps")
        .says("weight decay cannot change over 0 steps")
        .hint("wd_incr_steps must be at least 1");
}

}  // namespace

double LrSchedule::learning_rate(std::int64_t n) const {
  const LrSettings& s = settings_;
  if (s.lr_warmup_steps() > 0 && n <= s.lr_warmup_steps())
    return s.init_lr() + (s.max_lr() - s.init_lr()) * static_cast<double>(n) / static_cast<double>(s.lr_warmup_steps());
  if (s.lr_decay_style() == DecayStyle::kConstant) return s.max_lr();
  if (n > s.lr_decay_steps()) return s.min_lr();
  if (s.lr_decay_style() == DecayStyle::kInverseSquareRoot) {
    const auto warmup = static_cast<double>(std::max<std::int64_t>(s.lr_warmup_steps(), 1));
    const auto step = static_cast<double>(std::max<std::int64_t>(n, 1));
    return std::max(s.min_lr(), s.max_lr() * std::sqrt(warmup) / std::sqrt(step));
  }
  return s.min_lr() + decay_coefficient(s, n) * (s.max_lr() - s.min_lr());
}

double LrSchedule::weight_decay(std::int64_t n) const {
  const LrSettings& s = settings_;
  if (n > s.wd_incr_steps() || s.wd_incr_style() == WeightDecayStyle::kConstant) return s.end_wd();
  const double ratio = static_cast<double>(n) / static_cast<double>(s.wd_incr_steps());
  const double share = s.wd_incr_style() == WeightDecayStyle::kLinear ? ratio : half_cosine(1.0 - ratio);
  return s.start_wd() + share * (s.end_wd() - s.start_wd());
}

std::optional<LrSchedule> make_lr_schedule(const std::optional<config::LrSchedulerConfig>& section, double base_lr,
                                           double base_weight_decay, std::int64_t total_steps, Diagnostics& problems) {
  AUTOMODEL_CHECK(total_steps > 0, "a run must have at least one step");
  LrSettings s;
  s.max_lr = s.init_lr = s.min_lr = base_lr;
  s.start_wd = s.end_wd = base_weight_decay;
  s.lr_decay_steps = s.wd_incr_steps = total_steps;
  if (!section) return LrSchedule(s);
  const config::LrSchedulerConfig& c = *section;
  s.init_lr = c.init_lr().value_or(base_lr * 0.1);
  s.max_lr = c.max_lr().value_or(base_lr);
  s.min_lr = c.min_lr().value_or(base_lr * 0.01);
  s.lr_warmup_steps = c.lr_warmup_steps() ? *c.lr_warmup_steps() : std::min<std::int64_t>(1000, total_steps / 10);
  s.lr_decay_steps = c.lr_decay_steps() ? *c.lr_decay_steps() : total_steps;
  s.lr_decay_style = c.lr_decay_style();
  s.start_wd = c.start_wd().value_or(base_weight_decay);
  s.end_wd = c.end_wd().value_or(base_weight_decay);
  s.wd_incr_steps = c.wd_incr_steps() ? *c.wd_incr_steps() : total_steps;
  s.wd_incr_style = c.wd_incr_style();
  if (c.wsd_decay_steps()) s.wsd_decay_steps = std::int64_t{*c.wsd_decay_steps()};
  s.lr_wsd_decay_style = c.lr_wsd_decay_style();

  const std::size_t before = problems.size();
  check_rates(s, problems);
  check_decay(s, problems);
  check_weight_decay(s, problems);
  if (problems.size() > before) return std::nullopt;
  return LrSchedule(s);
}

namespace {

struct Difference {
  std::string key, first, second;
};

/// The settings that differ, except the lengths and ends of a decay or increase that neither schedule has.
std::vector<Difference> differences(const LrSettings& first, const LrSettings& second) {
  std::vector<std::string_view> idle;
  if (first.lr_decay_style() == DecayStyle::kConstant && second.lr_decay_style() == DecayStyle::kConstant)
    idle = {"lr_decay_steps", "min_lr"};
  if (first.wd_incr_style() == WeightDecayStyle::kConstant && second.wd_incr_style() == WeightDecayStyle::kConstant)
    idle.insert(idle.end(), {"wd_incr_steps", "start_wd"});
  std::vector<Difference> out;
  for (const auto& field : config::fields_of<LrSettings>()) {
    if (std::ranges::find(idle, field.key) != idle.end()) continue;
    const auto text = [&](const LrSettings& s) {
      return config::to_json(field.type->dump(field.of(&s), config::Keys::kAll));
    };
    if (text(first) != text(second)) out.push_back({std::string(field.key), text(first), text(second)});
  }
  return out;
}

}  // namespace

LrSettings resumed_settings(const std::optional<config::LrSchedulerConfig>& section, const LrSettings& recipe,
                            const LrSettings& checkpoint, Diagnostics& problems) {
  if (!section || section->override_opt_param_scheduler()) return recipe;
  if (section->use_checkpoint_opt_param_scheduler()) return checkpoint;
  for (const auto& [key, ours, theirs] : differences(recipe, checkpoint))
    problems.add("bad-value", "lr_scheduler." + std::string(key))
        .says("{} is {} in the recipe, but {} in the checkpoint", key, ours, theirs)
        .hint("set use_checkpoint_opt_param_scheduler or override_opt_param_scheduler to choose one");
  return recipe;
}

std::vector<std::string> rate_changes(const LrSettings& now, const LrSettings& before, std::string_view other) {
  std::vector<std::string> out;
  for (const auto& [key, ours, theirs] : differences(now, before))
    out.push_back(fmt::format("{} {} ({} {})", key, ours, other, theirs));
  return out;
}

}  // namespace automodel::plan
