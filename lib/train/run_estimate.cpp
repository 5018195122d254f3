#include "train/run_estimate.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/median.h"
#include "estimate/estimated_plan.h"
#include "estimate/past_runs.h"
#include "train/tensor_memory.h"

namespace automodel::train {
namespace {

constexpr double kFarOff = 2;

/// Describes how a prediction compares: in percent, or as a ratio if it is far off.
template <class Format>
std::string compared(double predicted, double measured, Format format) {
  const double ratio = measured > 0 ? predicted / measured : 1;
  if (ratio > kFarOff) return fmt::format("predicted {} ({:.1f} times the measured value)", format(predicted), ratio);
  if (ratio * kFarOff < 1) return fmt::format("predicted {} ({:.1f} times less)", format(predicted), 1 / ratio);
  return fmt::format("predicted {} ({:+.1f}%)", format(predicted), 100 * (ratio - 1));
}

/// The peak of a rank in each phase.
struct Peaks {
  int pp = 0;
  std::array<double, estimate::kPhaseCount> bytes = {};
  Peaks() = default;
  explicit Peaks(const std::string& text) {
    std::istringstream in(text);
    in >> pp;
    for (auto& each : bytes) in >> each;
  }
  double most() const { return *std::max_element(bytes.begin(), bytes.end()); }
};

/// Records the run, so that it corrects later plans of the same recipe. A calibration of another machine is left
/// unchanged.
void remember(const estimate::EstimatedPlan& plan, double seconds, double tokens, double bytes) {
  if (estimate::calibration_path().empty()) return;
  const auto machine = estimate::machine_name();
  auto calibration =
      estimate::parse_calibration(estimate::calibration_text()).value_or(estimate::Calibration{.machine = machine});
  if (!plan.cuda && calibration.machine != machine) return;
  const auto& estimate = *plan.estimate;
  calibration.add_run({.key = estimate::run_key(plan),
                       .recipe = plan.recipe_path,
                       .when = estimate::date_text(),
                       .seconds = {seconds},
                       .tokens = {tokens},
                       .predicted = {estimate.past.runs > 0 ? estimate.past.uncorrected : estimate.time.step},
                       .bytes = {bytes}});
  estimate::write_calibration(calibration);  // best effort: failing to write must not end a run
}

}  // namespace

void RunEstimate::end_phase(estimate::Phase phase) {
  auto& peak = peaks_[static_cast<std::size_t>(phase)];
  peak = std::max(peak, plan_.cuda ? take_device_peak() : take_tensor_peak());
}

void RunEstimate::add_step(double seconds, std::int64_t tokens) {
  end_phase(steps_.empty() ? estimate::Phase::kFirstStep : estimate::Phase::kSteady);
  steps_.push_back(seconds);
  tokens_.push_back(static_cast<double>(tokens));
}

double RunEstimate::tensors(int pp_rank, std::size_t phase) const {
  return plan_.estimate->memory.ranks[static_cast<std::size_t>(pp_rank)].phases[phase].tensors();
}

std::string RunEstimate::finish(comm::World& world, std::string& json) const {
  if (!plan_.estimate || steps_.size() < 3) return "";
  const auto all = world.gather_text(fmt::format("{} {}", pp_rank_, fmt::join(peaks_, " ")));
  if (world.rank() != 0) return "";
  // The rank with the highest measured peak, and the prediction for its stage.
  Peaks heaviest;
  for (const auto& text : all)
    if (const Peaks each(text); each.most() > heaviest.most()) heaviest = each;
  const auto& estimate = *plan_.estimate;
  const double measured = heaviest.most();
  double predicted = 0;
  for (std::size_t i = 0; i < estimate::kPhaseCount; ++i)
    if (heaviest.bytes[i] > 0) predicted = std::max(predicted, tensors(heaviest.pp, i));
  const double step = median({steps_.begin() + 1, steps_.end()});
  const double tokens = median({tokens_.begin() + 1, tokens_.end()});
  remember(plan_, step, tokens, measured);
  // A plan of rows without a fixed length assumes the longest one for all.
  const double part = plan_.batch.tokens() > 0 ? tokens / static_cast<double>(plan_.batch.tokens()) : 1;
  const double predicted_step = part * estimate.time.step;
  JsonWriter out;
  out.begin_object();
  out.member("recipe", plan_.recipe_path);
  out.member("world_size", world.size());
  out.member("pp_rank", heaviest.pp);
  out.member("predicted_tensor_bytes", predicted);
  out.member("measured_tensor_bytes", measured);
  out.key("phases");
  out.begin_object();
  for (std::size_t i = 0; i < estimate::kPhaseCount; ++i) {
    if (heaviest.bytes[i] == 0) continue;
    out.key(estimate::name_of(static_cast<estimate::Phase>(i)));
    out.begin_object();
    out.member("predicted_tensor_bytes", tensors(heaviest.pp, i));
    out.member("measured_tensor_bytes", heaviest.bytes[i]);
    out.end_object();
  }
  out.end_object();
  out.member("predicted_step_seconds", predicted_step);
  out.member("measured_step_seconds", step);
  out.member("steps", steps_.size());
  out.member("hardware", estimate.hardware.origin);
  out.member("calibrated", estimate.hardware.measured());
  out.member("past_runs", estimate.past.runs);
  out.member("computed_step_seconds", part * (estimate.past.runs > 0 ? estimate.past.uncorrected : estimate.time.step));
  out.end_object();
  json = out.take();
  if (!estimate.hardware.measured() && estimate.past.runs == 0) return "";
  return fmt::format("estimate  tensors per rank: peak {}, {}; step: {}, {}", format_bytes(measured),
                     compared(predicted, measured, format_bytes), format_seconds(step),
                     compared(predicted_step, step, format_seconds));
}

}  // namespace automodel::train
