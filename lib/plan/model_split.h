// Splits a model into stages by lists of module names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arch/modules.h"
#include "base/diagnostic.h"
#include "plan/fqn_split.h"
#include "schedule/placement.h"

namespace automodel::plan {

/// The part of the model that one stage holds.
struct StagePart {
  /// The named modules that exist in the model, in the order given; none is nested in another.
  std::vector<int> modules = {};
  std::vector<std::string> fqns = {};
  /// Original indices of its layers, in the order given. Layers keep their names: `layers.7` stays `layers.7`.
  std::vector<int> layers = {};
  /// Number of parameter elements. A tied head counts if its embedding is on another stage.
  std::int64_t parameters = 0;
  bool has_embedding = false;
  bool has_norm = false;
  bool has_head = false;
  bool has(const arch::Parameter& parameter) const {
    return arch::stands_in(parameter, layers, has_embedding, has_norm, has_head);
  }
  /// Whether this is an adapter parameter of a weight in this stage.
  bool has_adapter(const arch::Parameter& parameter) const {
    return parameter.role == arch::Role::kAdapter && has(parameter);
  }
};

/// Splits `tree` like NeMo AutoModel's split_model_into_stages: a stage keeps the modules it names, including
/// everything below them. Unknown names are skipped (check_split() reports them). Linear in the size of tree and names.
std::vector<StagePart> split_model(const arch::ModuleTree& tree, const StageFqns& names);

/// Problems of an explicit split (`distributed.pipeline.module_fqns_per_model_part`):
///   unknown-module    a name that the model lacks, with a suggestion, or that of a part of a layer
///   duplicate-module  a module with parameters that appears twice
///   missing-module    a module with parameters, or the head, that is in no stage
///   stage-order       layers out of order, embeddings after the first stage, norm or head before the last
/// NeMo AutoModel silently skips unknown names and drops modules that no stage names.
Diagnostics check_split(const arch::ModuleTree& tree, const StageFqns& names);

/// Problems of a pipeline with `stages` explicit stages: `indivisible` (not a multiple of pp_size),
/// schedule-single-stage, schedule-multi-stage, schedule-v-stages.
Diagnostics check_split_schedule(int stages, int pp_size, bool single_stage, schedule::PlacementStyle placement);

}  // namespace automodel::plan
