// A launcher (mpirun) as a child, so that signals which it would take for the end of the job reach the ranks as a wish
// to stop.
#pragma once

#include <string>
#include <vector>

namespace automodel::launch {

/// Runs `words` and returns its exit code (128 + signal where it was killed). SIGTERM and SIGUSR1 become SIGUSR1, which
/// Open MPI hands to all ranks: they save and end with 10; a second SIGTERM is passed on as it is. SIGINT is left to
/// the terminal, which sends it to the child too. The child ends with this process. `hint` helps where it cannot be
/// started.
int supervise(const std::vector<std::string>& words, const std::string& hint);

}  // namespace automodel::launch
