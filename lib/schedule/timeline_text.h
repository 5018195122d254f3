// A compact timeline for the terminal.
#pragma once

#include <cstddef>
#include <string>

#include "schedule/simulate.h"

namespace automodel::schedule {

/// One line per rank, one column per unit of time (the shortest computation), for example
///   rank 0  F0 F1 .. .. B0 -- B1 --
///   rank 1  .. F0 B0 -- F1 B1 -- ..
/// ".." is idle, "--" continues the computation to its left. Actions are prefixed with the stage ("2F0") if ranks have
/// several. Lines are cut at `width` characters with "...". Shows computations only.
std::string timeline_text(const Timeline& timeline, std::size_t width = 120);

/// A sentence if one rank's work alone takes 95 % of the makespan and others have at least 2 % less: then no other
/// order makes the step shorter, only another division of the layers. Else empty.
std::string heaviest_rank(const Timeline& timeline);

}  // namespace automodel::schedule
