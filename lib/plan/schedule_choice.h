// Whether a batch fits a pipeline schedule: number of microbatches and what a user should hear about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/diagnostic.h"

namespace automodel::plan {

struct ScheduleRequest {
  std::string name = {};                ///< as the user wrote it, for messages
  std::optional<std::string> csv = {};  ///< a file that holds the schedule instead
  std::int64_t microbatch_size = 1;     ///< sequences (pp_microbatch_size)
  std::int64_t batch_size = 1;          ///< sequences of a rank's pipeline batch (pp_batch_size)
  int stages = 1;
  int local_stages = 1;              ///< stages of one rank
  bool single_stage = true;          ///< the schedule runs one stage a rank
  bool needs_full_pipeline = false;  ///< the schedule cannot run fewer microbatches than stages
};

struct ScheduleChoice {
  std::int64_t microbatches = 1;
  std::string summary = {};   ///< one line for the log
  Diagnostics warnings = {};  ///< few-microbatches: fewer than stages of a rank, most of the time is bubble
};

/// The checks of NeMo AutoModel's build_pipeline_schedule. Which schedules there are, whether they run one stage a rank
/// and whether they need as many microbatches as stages is the caller's knowledge; that a schedule of several stages a
/// rank gets several is checked where stages are counted (calculate_virtual_stages). NeMo AutoModel runs only the first
/// of several stages where the schedule runs one; that is refused here.
/// Problems, with keys of `distributed.pipeline.`:
///   missing-file            `csv` is not a file
///   bad-value               a size below 1
///   indivisible             batch_size is no multiple of microbatch_size
///   schedule-single-stage   several stages on a rank of a schedule that runs one
///   schedule-microbatches   fewer microbatches than stages where the schedule cannot run that
/// The help names the nearest microbatch and batch sizes that pass.
std::optional<ScheduleChoice> choose_schedule(const ScheduleRequest& request, Diagnostics& problems);

}  // namespace automodel::plan
