// A timeline as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
#pragma once

#include <string>
#include <string_view>

#include "schedule/simulate.h"

namespace automodel::schedule {

/// A JSON object with "traceEvents": one process called `name`, one thread a rank for its computations and, where any
/// communication takes time, one for that. A second of the timeline is a second of the trace.
std::string chrome_trace(const Timeline& timeline, std::string_view name);

}  // namespace automodel::schedule
