// A timeline as a self-contained Gantt chart.
#pragma once

#include <string>
#include <vector>

#include "schedule/simulate.h"

namespace automodel::schedule {

struct SvgOptions {
  std::string title = {};  ///< any text; the bubble fraction is appended
  bool in_seconds = true;  ///< false: times are in units of one forward, as with unit_costs()
};

/// One lane per rank. Boxes show the microbatch number if wide enough and are darker for a rank's first stage, lighter
/// for its later ones. Communication that takes time is drawn in a strip below; idle time is hatched. Colours: forward
/// blue, input gradient orange, weight gradient green, full backward red, messages violet, gathering and reducing grey.
/// The halves of an overlapped pair are joined by a line. No scripts or external references; all text is escaped.
std::string timeline_svg(const Timeline& timeline, const SvgOptions& options = {});

/// Several charts below each other in one file.
struct SvgChart {
  const Timeline* timeline;
  SvgOptions options = {};
};
std::string timeline_svg(const std::vector<SvgChart>& charts);

}  // namespace automodel::schedule
