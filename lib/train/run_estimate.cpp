#include "train/run_estimate.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/median.h"
#include "plan/past_runs.h"
#include "train/tensor_memory.h"

namespace automodel::train {
namespace {

double difference(double predicted, double measured) {
  return measured > 0 ? predicted / measured - 1 : 0;
}

/// Adds the run to what plans of the same recipe are corrected by. A calibration of another machine stays as it is.
void remember(const plan::TrainingPlan& plan, double seconds, double bytes) {
  if (plan::calibration_path().empty()) return;
  const auto machine = plan::machine_name();
  auto calibration = plan::parse_calibration(plan::calibration_text()).value_or(plan::Calibration{.machine = machine});
  if (!plan.cuda && calibration.machine != machine) return;
  const auto& estimate = *plan.estimate;
  calibration.add_run({.key = plan::run_key(plan),
                       .recipe = plan.recipe_path,
                       .when = plan::date_text(),
                       .seconds = {seconds},
                       .predicted = {estimate.past.runs > 0 ? estimate.past.uncorrected : estimate.time.step},
                       .bytes = {bytes}});
  plan::write_calibration(calibration);  // a folder that cannot be written is no reason to end a run
}

}  // namespace

std::string RunEstimate::finish(comm::World& world, std::string& json) const {
  if (!plan_.estimate || steps_.size() < 3) return "";
  const auto peak = tensor_memory().peak;
  const auto all = world.gather_text(fmt::format("{} {}", pp_rank_, peak));
  if (world.rank() != 0) return "";
  // The heaviest rank by measurement, and the prediction for its stage.
  int heaviest = 0;
  double measured = 0;
  for (const auto& text : all) {
    std::istringstream in(text);
    int pp = 0;
    double bytes = 0;
    in >> pp >> bytes;
    if (bytes > measured) measured = bytes, heaviest = pp;
  }
  const auto& estimate = *plan_.estimate;
  double predicted = 0;
  for (const auto& phase : {plan::Phase::kFirstStep, plan::Phase::kSteady, plan::Phase::kInitialization})
    predicted = std::max(predicted, estimate.memory.ranks[static_cast<std::size_t>(heaviest)].in(phase).tensors());
  const double step = median({steps_.begin() + 1, steps_.end()});
  remember(plan_, step, measured);
  JsonWriter out;
  out.begin_object();
  out.member("recipe", plan_.recipe_path);
  out.member("world_size", world.size());
  out.member("pp_rank", heaviest);
  out.member("predicted_tensor_bytes", predicted);
  out.member("measured_tensor_bytes", measured);
  out.member("predicted_step_seconds", estimate.time.step);
  out.member("measured_step_seconds", step);
  out.member("steps", steps_.size());
  out.member("hardware", estimate.hardware.origin);
  out.member("calibrated", estimate.hardware.measured());
  out.member("past_runs", estimate.past.runs);
  out.member("computed_step_seconds", estimate.past.runs > 0 ? estimate.past.uncorrected : estimate.time.step);
  out.end_object();
  json = out.take();
  return fmt::format(
      "estimate  tensors at most {} on a rank (predicted {}, {:+.1f}%); step {} (predicted {}, {:+.1f}%)",
      format_bytes(measured), format_bytes(predicted), 100 * difference(predicted, measured), format_seconds(step),
      format_seconds(estimate.time.step), 100 * difference(estimate.time.step, step));
}

}  // namespace automodel::train
