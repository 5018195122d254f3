// Memory of every pipeline rank in every phase of a run, and whether it fits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "estimate/activation_memory.h"
#include "estimate/hardware.h"
#include "estimate/stage_elements.h"
#include "plan/training_plan.h"

namespace automodel::estimate {

enum class Phase : std::uint8_t { kInitialization, kFirstStep, kSteady, kEvaluation, kCheckpoint };
inline constexpr std::size_t kPhaseCount = 5;
/// "initialization", "first step", "steady", "evaluation", "checkpoint".
std::string_view name_of(Phase phase);

/// Bytes of one rank by purpose. Offloaded parts count in `host`, which total() excludes.
struct MemoryShares {
  double weights = 0;      ///< compute weights including gathered ones, and separate master weights
  double gradients = 0;    ///< unreduced and reduced
  double optimizer = 0;    ///< moments
  double activations = 0;  ///< of all microbatches in flight, plus a backward pass's working memory
  double logits = 0;
  double buffers = 0;    ///< messages between stages, gradients being reduced
  double framework = 0;  ///< libraries, contexts, communicators
  double host = 0;
  /// What is allocated as tensors: everything except `framework` and `host`.
  double tensors() const { return weights + gradients + optimizer + activations + logits + buffers; }
  double total() const { return tensors() + framework; }
};

enum class Fit : std::uint8_t { kUnknown, kFits, kTight, kDoesNotFit };
std::string_view name_of(Fit fit);

struct RankMemory {
  int pp_rank = 0;
  std::int64_t parameters = 0;  ///< elements on this rank, after tp and ep but before dp sharding
  std::array<MemoryShares, kPhaseCount> phases = {};
  double most_activations = 0;  ///< maximum within a step, not necessarily at the memory peak
  const MemoryShares& in(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  Phase peak = Phase::kSteady;
  const MemoryShares& most() const { return in(peak); }
};

struct MemoryPlan {
  std::vector<RankMemory> ranks = {};  ///< by pp rank
  int heaviest = 0;                    ///< pp rank with the highest peak
  std::optional<double> capacity = {};
  Fit fit = Fit::kUnknown;  ///< of the heaviest rank; kTight: above 90 % of the capacity
  const RankMemory& heaviest_rank() const { return ranks[static_cast<std::size_t>(heaviest)]; }
  /// Peak bytes of the heaviest rank.
  double peak() const { return heaviest_rank().most().total(); }
};

/// The estimate's inputs besides the plan.
struct MemoryRequest {
  bool saves = false;                ///< checkpoints are written
  bool saves_in_background = false;  ///< training continues while they are written
  double copies = 0;                 ///< bytes per rank for copies in host memory
  std::optional<double> capacity = {};
  double framework = 0;
};
/// What a rank holds for one microbatch in a stage.
struct StageActivations {
  double all = 0;   ///< bytes from its forward to the end of its input gradient ...
  double kept = 0;  ///< ... and of that, until the end of its weight gradient
};
/// By stage; with what the allocator holds in addition. Needs the plan's pipeline.
std::vector<StageActivations> stage_activations(const plan::TrainingPlan& plan);
/// `does-not-fit` if the heaviest rank's peak is above its device's memory.
std::optional<Diagnostic> check_capacity(const MemoryPlan& memory);
/// Needs the plan's pipeline.
MemoryPlan plan_memory(const plan::TrainingPlan& plan, const MemoryRequest& request);

}  // namespace automodel::estimate
