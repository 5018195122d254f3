// Kills the launcher of the ranks if it hangs after a failed job.
#pragma once

#include <chrono>

namespace automodel::comm {

/// Open MPI's mpirun waits indefinitely for its daemons on other hosts to confirm that they have ended their ranks,
/// even if such a host is unreachable. Called just before MPI_Abort, this leaves a small process behind that kills the
/// launcher (this process's parent, if that is mpirun itself) if it still exists after `patience`. The job then ends
/// with the exit code of a killed program, 137 in a shell, with the last words already printed.
void end_stuck_launcher_after(std::chrono::seconds patience);

}  // namespace automodel::comm
