// A timeline as Chrome trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedule/simulate.h"

namespace automodel::schedule {

/// A JSON object with "traceEvents": one process called `name` with a thread per rank for computation and, if any
/// communication takes time, another for communication. One second of the timeline is one second of the trace.
std::string chrome_trace(const Timeline& timeline, std::string_view name);

/// Several timelines below each other, each as a named process, all starting at the same time.
struct NamedTimeline {
  std::string_view name;
  const Timeline* timeline;
};
std::string chrome_trace(const std::vector<NamedTimeline>& timelines);

}  // namespace automodel::schedule
