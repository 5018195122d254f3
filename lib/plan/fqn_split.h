// Module names of pipeline stages, with layers spread evenly.
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
/// The layers of `stage` if `layers` are spread evenly; the first stages get one more if they do not divide.
LayerRange even_layers(int stage, int stages, int layers);

/// Reports problems with splitting `layers` into `stages`, `stages_per_rank` on each rank, and suggests sizes that
/// work.
void check_stage_count(int stages, int layers, int stages_per_rank, Diagnostics& problems);

}  // namespace automodel::plan
