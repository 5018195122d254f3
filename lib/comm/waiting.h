// How long a thread has waited for other ranks.
#pragma once

namespace automodel::comm {

/// Seconds that this thread has spent in Work::wait for host tensors so far, over all groups. The difference of two
/// calls is the time waited between them. Counted by the engine, at the cost of a few clock reads per wait.
double seconds_waited();

}  // namespace automodel::comm
