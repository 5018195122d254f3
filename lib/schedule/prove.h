// Proves that a complete table runs to completion on any transport, and determines its memory needs.
#pragma once

#include <vector>

#include "base/diagnostic.h"
#include "schedule/action.h"
#include "schedule/origin.h"
#include "schedule/placement.h"

namespace automodel::schedule {

/// How many of a rank's messages may be leaving at once on a GPU, whose host runs ahead of it: each keeps its memory.
/// That a table completes with one (a rendezvous of both sides) is proved.
inline constexpr int kMostLeaving = 3;

/// Peak numbers of simultaneously live objects of one rank or stage. They depend only on the order of the row, not on
/// durations.
struct Live {
  /// Receives posted by RECV_F or RECV_B and not yet consumed by F, B or I.
  int receive_buffers = 0;
  /// Microbatches between their F and the end of their backward (B or W), whose activations are kept. 0 in an
  /// evaluation table, which keeps none.
  int in_flight = 0;
  int awaiting_weight = 0;  ///< those in flight whose I is done but whose W is not
  bool operator==(const Live&) const = default;
};

struct Proof {
  Diagnostics problems = {};      ///< empty: proven
  std::vector<Live> ranks = {};   ///< by pipeline rank
  std::vector<Live> stages = {};  ///< by stage
  bool ok() const { return problems.empty(); }
};

/// Checks a table with communication (from lower() or a compute_comms file) whose computations validate() accepted.
/// Establishes two properties.
///
/// Communication is complete. Every SEND has exactly one RECV, between neighbouring stages on different ranks, after
/// the computation that produces the data and before the one that consumes it. Everything needed from another rank is
/// received. For each ordered pair of ranks, sends and receives have the same order, as transports without tags
/// require. A stage with UNSHARD or RESHARD is computed only while gathered. REDUCE_GRAD occurs once per stage that has
/// a backward, after the last one. Ids: schedule-send, schedule-recv, schedule-send-order, schedule-unshard,
/// schedule-reduce-grad.
///
/// The table terminates under the weakest guarantees a transport may give: a SEND blocks until the matching RECV is
/// posted, a RECV is posted without blocking (a pool of Live::receive_buffers never runs out), and a computation waits
/// for its data. The order in which ranks run does not matter: an action that can run stays runnable, so one
/// terminating run proves that all terminate. Otherwise reports schedule-deadlock with the cycle.
///
/// Linear in the size of the table.
Proof prove(const Schedule& schedule, const Placement& placement, const Shape& shape, const Origin& origin = {});

/// Whether a table that prove() accepted also terminates if every message is a rendezvous in which both ranks take
/// part, one message at a time per rank. That is how NCCL executes a table, with one stream for messages, no tags and
/// no buffering. Reports `schedule-meeting` if it does not terminate.
Diagnostics prove_meetings(const Schedule& schedule, const Placement& placement, const Shape& shape,
                           const Origin& origin = {});

}  // namespace automodel::schedule
