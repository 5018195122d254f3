// How a schedule scales with the number of microbatches, from its simulation, for ranking search candidates.
#pragma once

#include <map>
#include <tuple>

#include "schedule/generators.h"

namespace automodel::estimate {

struct ScheduleScale {
  double bubble = 0;     ///< fraction of the time that a rank is idle, if F, I and W take the same time on all stages
  double in_flight = 1;  ///< microbatches times stages whose activations the heaviest rank keeps
};

/// Simulates each schedule at a few sizes only: a pipeline that is full gains work with every further microbatch, but
/// neither idle time nor activations.
class ScheduleScales {
 public:
  /// The request must have passed schedule::check_request().
  ScheduleScale of(const schedule::Generator& generator, const schedule::Request& request);

 private:
  struct Simulated {
    double idle;  ///< in units of a stage's F
    double in_flight;
  };
  std::map<std::tuple<const schedule::Generator*, int, int, int>, Simulated> simulated_ = {};
};

}  // namespace automodel::estimate
