// Searches for the mesh, schedule, microbatch size and recomputation that train a recipe's model fastest on a given
// number of ranks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "estimate/estimated_plan.h"

namespace automodel::estimate {

/// One configuration.
struct Candidate {
  std::vector<config::Override> overrides = {};  ///< relative to the recipe
  mesh::MeshSizes sizes = {};
  std::string schedule = {};  ///< name including stages per rank; "-" without a pipeline
  int microbatch = 1;
  std::string recompute = {};
  std::string reduce = {};  ///< gradients are reduced once per "step" or after every "microbatch"
  // From its full plan.
  double step = 0, tokens_per_second = 0, mfu = 0, bubble = 0, memory = 0;
  Fit fit = Fit::kUnknown;
  /// Seconds per step. Communication inside stages counts at full link speed, so parts may overlap.
  struct Parts {
    double bubble = 0, data_parallel = 0, optimizer = 0, tensor = 0, experts = 0;
  } parts = {};
};

/// A reason why candidates were rejected, how many, and the one that came closest.
struct Refusal {
  std::string reason = {};
  int count = 0;
  std::string example = {};
};

struct SearchResult {
  std::vector<Candidate> best = {};   ///< by predicted throughput; all fully planned, schedules proved
  std::optional<Candidate> own = {};  ///< the recipe as is, if it can be planned
  std::vector<Refusal> refused = {};
  int considered = 0;
  int planned = 0;
  int untried = 0;  ///< candidates that might fit but were not planned
  double seconds = 0;
  Hardware hardware = {};
  int world_size = 0;
  Diagnostics problems = {};  ///< the recipe itself lacks what a search needs
};

struct SearchRequest {
  PlanRequest plan = {};
  int world_size = 1;
  int show = 5;           ///< number of best candidates returned
  int plans = 24;         ///< number of candidates planned in full
  double patience = 0.7;  ///< seconds after which planning stops, once a candidate fits
};
/// Tries every tp up to the size of a machine, and every pp, cp (from 32k tokens per sequence on, or if the recipe uses
/// it) and ep that divides; schedules 1F1B, interleaved with 2, 4 or 8 stages per rank, zero bubble; microbatches of 1,
/// 2, 4 or 8 sequences; recomputation off, selective or full. The recipe's global batch is kept.
SearchResult search_plans(const config::LoadedRecipe& recipe, const SearchRequest& request);

std::string to_text(const SearchResult& result);
std::string to_json(const SearchResult& result);
/// Sets the recipe's pipeline schedule by name and removes keys that would fix another schedule or split;
/// layers_per_stage and the section's other keys stay.
void set_schedule(config::Recipe& recipe, std::string_view schedule, int microbatch);

/// The recipe with a candidate's overrides, as YAML.
std::string apply_candidate(const config::LoadedRecipe& recipe, const Candidate& candidate);

}  // namespace automodel::estimate
