// Names of the modules of each pipeline stage, layers spread evenly.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::plan {

/// Module names of every stage.
using StageFqns = std::vector<std::vector<std::string>>;

/// Layers [begin, end) of one stage.
struct LayerRange {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool operator==(const LayerRange&) const = default;
};
/// `layers` in runs that differ by at most one; the first stages get the longer ones.
LayerRange even_layers(int stage, int stages, int layers);

/// Appends what is wrong with cutting `layers` into `stages` of `stages_per_rank` a rank, advising sizes that work.
void check_stage_count(int stages, int layers, int stages_per_rank, Diagnostics& problems);

}  // namespace automodel::plan
