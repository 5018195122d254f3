#include "plan/fqn_split.h"

#include <algorithm>

#include <fmt/format.h>

namespace automodel::plan {

LayerRange even_layers(int stage, int stages, int layers) {
  const int each = layers / stages;
  const int longer = layers % stages;
  const int begin = stage * each + std::min(stage, longer);
  return {begin, begin + each + (stage < longer ? 1 : 0)};
}

void check_stage_count(int stages, int layers, int stages_per_rank, Diagnostics& problems) {
  if (stages < 1) {
    problems.add("bad-value", "distributed.pp_size")
        .says("{} pipeline stages", stages)
        .hint("there must be at least 1");
  } else if (stages > layers) {
    const int ranks = layers / std::max(1, stages_per_rank);
    const auto each = stages_per_rank > 1 ? fmt::format(" ({} per rank)", stages_per_rank) : "";
    problems.add("too-many-stages", "distributed.pp_size")
        .says("{} pipeline stages{} for {} layers", stages, each, layers)
        .hint(ranks >= 1 ? fmt::format("every stage needs a layer; use at most pp_size: {}", ranks)
                         : fmt::format("every stage needs a layer; use a schedule with one stage per rank"));
  }
}

}  // namespace automodel::plan
