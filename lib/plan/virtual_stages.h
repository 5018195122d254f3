// The number of pipeline stages of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/diagnostic.h"

namespace automodel::plan {

/// What to do if the number of stages is not a multiple of the pipeline size.
enum class StageRounding : std::uint8_t { kRefuse, kUp, kDown };

std::string_view name_of(StageRounding rounding);

struct VirtualStagesRequest {
  std::int64_t layers = 1;
  std::optional<std::int64_t> layers_per_stage = {};  ///< empty: one stage per rank, two for multi-stage schedules
  std::int64_t pp_size = 1;
  bool single_stage = true;  ///< the schedule runs exactly one stage per rank
  bool v_placement = false;  ///< the schedule runs exactly two stages per rank, placed as a V
  StageRounding rounding = StageRounding::kRefuse;
};

struct VirtualStages {
  int stages = 1;
  int per_rank = 1;
  bool operator==(const VirtualStages&) const = default;
};

/// The number of stages as in NeMo AutoModel's calculate_virtual_stages: ceil(layers / layers_per_stage), rounded to a
/// multiple of pp_size. layers_per_stage only determines that number; layers are then spread evenly. Without
/// layers_per_stage nothing is checked here; too few layers are detected when the model is split.
/// Problems, with keys below `distributed`:
///   bad-value              a number below 1
///   indivisible            not a multiple of pp_size, and no rounding requested
///   schedule-single-stage  not exactly one stage per rank, but the schedule runs one
///   schedule-multi-stage   fewer than two stages per rank, but the schedule runs several
///   schedule-v-stages      not exactly two stages per rank, but the schedule places them as a V
/// The help names the nearest values that pass this check and give every stage at least one layer.
std::optional<VirtualStages> calculate_virtual_stages(const VirtualStagesRequest& request, Diagnostics& problems);

}  // namespace automodel::plan
