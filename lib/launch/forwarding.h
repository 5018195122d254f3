// The part of a job's script that waits for mpirun or srun and passes signals on.
#pragma once

#include <string>

namespace automodel::launch {

/// Shell commands for after "... &": they wait for the command, leave its exit code in $code, and define `stop`, which
/// asks the ranks to save and end (SIGUSR1). `traps`: lines that call it; `untrap`: what takes them back. wait returns
/// early for every forwarded signal; the last call returns the exit code. USR1 is sent repeatedly, since mpirun loses a
/// signal that arrives while it starts its ranks; it would kill the ranks on SIGTERM before they can save.
std::string wait_and_forward(const std::string& traps, const std::string& untrap);

}  // namespace automodel::launch
