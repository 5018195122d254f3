#include "train/slow_ranks.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"

namespace automodel::train {
namespace {

constexpr double kNoise = 1e-3;  // seconds per step; smaller differences are noise of clocks and schedulers

double own_work(const PhaseSeconds& seconds) {
  double out = 0;
  for (std::size_t phase = 0; phase < kStepPhases; ++phase)
    if (static_cast<StepPhase>(phase) != StepPhase::kWaiting) out += seconds[phase];
  return out;
}

/// Lower median, so that one of two ranks can count as slow.
double usual_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

SlowRanks::SlowRanks(const config::SlowRankConfig& config, std::vector<RankPlace> ranks)
    : config_(config), ranks_(std::move(ranks)) {}

std::vector<SlowRank> SlowRanks::judge(const std::vector<PhaseSeconds>& seconds) {
  AUTOMODEL_CHECK(seconds.size() == ranks_.size(), "the times of every rank");
  std::vector<SlowRank> out;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::vector<std::size_t> peers;
    for (std::size_t other = 0; other < ranks_.size(); ++other)
      if (ranks_[other].pp == ranks_[rank].pp) peers.push_back(other);
    const bool alone = peers.size() < 2;
    if (alone) {
      peers.clear();
      for (std::size_t other = 0; other < ranks_.size(); ++other) peers.push_back(other);
    }
    const auto usual = [&](auto&& value) {
      std::vector<double> values;
      for (const auto peer : peers)
        values.push_back(value(seconds[peer]) * (alone ? ranks_[rank].planned / ranks_[peer].planned : 1));
      return usual_of(std::move(values));
    };
    SlowRank slow{.rank = static_cast<int>(rank), .seconds = own_work(seconds[rank]), .usual = usual(own_work)};
    if (slow.seconds <= config_.factor() * slow.usual || slow.seconds - slow.usual < kNoise) continue;
    if (!named_.insert(slow.rank).second) continue;
    double most = -1;
    for (std::size_t phase = 0; phase < kStepPhases; ++phase) {
      if (static_cast<StepPhase>(phase) == StepPhase::kWaiting) continue;
      const double lost = seconds[rank][phase] - usual([&](const PhaseSeconds& each) { return each[phase]; });
      if (lost <= most) continue;
      most = lost;
      slow.phase = static_cast<StepPhase>(phase);
    }
    out.push_back(slow);
  }
  return out;
}

std::string SlowRanks::text_of(const SlowRank& slow) const {
  return fmt::format("rank {} (host {}) is slow: {} of its own work in a step, the others {}; most of it in {}",
                     slow.rank, place_of(slow.rank).host, format_seconds(slow.seconds), format_seconds(slow.usual),
                     name_of(slow.phase));
}

}  // namespace automodel::train
