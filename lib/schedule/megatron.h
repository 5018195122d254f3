// Megatron Core's interleaved schedule in terms of its own tables: the microbatch and chunk of each virtual microbatch,
// the number of warm-up forwards, and the order in which a rank runs its chunks.
#pragma once

#include <vector>

namespace automodel::schedule::megatron {

/// One virtual microbatch: `microbatch` through model chunk `chunk` (the chunk-th stage of a rank).
struct Step {
  int microbatch = 0;
  int chunk = 0;
  bool operator==(const Step&) const = default;
};

struct Run {
  int ranks = 1;
  int chunks = 1;  ///< stages per rank
  int microbatches = 1;
  /// microbatch_group_size_per_vp_stage: microbatches run through a chunk before the next chunk.
  int group_size = 1;
  bool interleaved = true;  ///< false: no virtual stages, so one chunk and the warm-up of plain 1F1B
  bool forward_only = false;
  /// One more forward in the warm-up, so that a step's forward and backward do not depend on each other.
  bool overlap_moe_expert_parallel_comm = false;
};

/// The forward order of the virtual microbatches, the same on every rank: each group of `group_size` microbatches goes
/// through all chunks before the next group. Backward uses the same table with the chunks reversed. Has microbatches *
/// chunks entries.
std::vector<Step> schedule_table(int microbatches, int chunks, int group_size);

struct Warmup {
  int total = 0;      ///< virtual microbatches
  int warmup = 0;     ///< forwards before the first backward
  int remaining = 0;  ///< total - warmup
  bool all_in_warmup = false;
};
Warmup warmup(const Run& run, int rank);

/// The order of rank `rank`, with one code per forward and one per backward of each virtual microbatch: the chunk
/// counted from 1, negated for a backward. The k-th positive code is the k-th step of the table, the k-th negative one
/// the same step with the chunks reversed.
std::vector<int> order(const Run& run, int rank);

}  // namespace automodel::schedule::megatron
