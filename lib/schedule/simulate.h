// Simulates a table with given action durations.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/action.h"
#include "schedule/placement.h"

namespace automodel::schedule {

/// Duration in seconds of each action of a stage: per microbatch, or per execution for the last three.
struct StageCost {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double full_backward = 2;
  double unshard = 0;
  double reshard = 0;
  double reduce_grad = 0;
};

/// Cost of a message between stage s and s + 1, in either direction: `transfer` occupies the sender's link (bytes /
/// bandwidth); after another `latency` the data can be used.
struct EdgeCost {
  double latency = 0;
  double transfer = 0;
};

struct Costs {
  std::vector<StageCost> stages = {};
  std::vector<EdgeCost> edges = {};  ///< stages - 1 entries; ignored between stages on the same rank
  /// True: communication runs concurrently with computation, one operation per rank at a time, in table order. False: a
  /// rank does not compute while it sends, gathers or reduces.
  bool overlap_communication = true;
};
/// F = I = W = 1, B = 2 on every stage, and free communication.
Costs unit_costs(int stages);

enum class Lane : std::uint8_t { kCompute, kCommunication };

/// One box of a Gantt chart. The two halves of an overlapped pair are shown one after the other, since their actual
/// overlap depends on the machine.
struct Event {
  double start = 0;
  double end = 0;
  Action action = {};
  int rank = 0;
  Lane lane = Lane::kCompute;
  bool paired = false;  ///< half of an overlapped pair
};

struct RankTime {
  double busy = 0;           ///< computing
  double idle = 0;           ///< makespan - busy
  double communicating = 0;  ///< on the communication lane or, without overlap, between computations
  int peak_in_flight = 0;    ///< peak number of microbatches whose activations are kept (see Live::in_flight)
};

struct Timeline {
  Shape shape = {};
  Placement placement = {};
  /// Each rank's compute events are in chronological order, and so are its communication events. Zero-length
  /// communication events are omitted.
  std::vector<Event> events = {};
  std::vector<RankTime> ranks = {};
  double makespan = 0;
  /// Fraction of all ranks' time not spent computing: 1 - busy / (ranks * makespan).
  double bubble_fraction = 0;
};

/// Simulates a table that prove() accepted. A computation starts once its rank is free and its data has arrived; a
/// message starts once its send has been issued and its receive posted. Linear in the size of the table.
Timeline simulate(const Schedule& schedule, const Placement& placement, const Shape& shape, const Costs& costs);

}  // namespace automodel::schedule
