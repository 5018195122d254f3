// How long a thread has waited for other ranks.
#pragma once

namespace automodel::comm {

/// Seconds that this thread has spent in Work::wait of host tensors so far, of all groups together. A difference says
/// what of a stretch of its time was not its own. Counted by the engine; a few reads of the clock a wait.
double seconds_waited();

}  // namespace automodel::comm
