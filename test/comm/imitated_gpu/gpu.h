// An imitation of CUDA streams and NCCL for ranks that are threads of one process: lib/comm/nccl is compiled against
// it.
//
// The imitated GPU computes at once and on the host: a thread is its own current stream, its tensors are host tensors.
// Other streams are threads that do what they were given in its order, after a random delay. What makes mistakes show:
//
// - an operation takes a copy of its input and fills its output with NaN when it is launched, and begins only later:
// who
//   reads the output without waiting reads NaN, and who writes to either is found when the operation begins;
// - an operation whose stream does not wait for what the current stream was given before it is found at its launch;
// - messages of a pair meet: a send ends when it is received;
// - the first message of a pair holds up both hosts until both are there, as NCCL's connections do.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "comm/world.h"

namespace automodel::test {

struct GpuBehaviour {
  std::uint64_t seed = 1;
  std::chrono::microseconds most_delay{200};  ///< before an operation begins
  bool one_gpu = false;                       ///< which all ranks see
};
/// For what is made from now on; forgets what was found.
void set_gpus(const GpuBehaviour& behaviour);
/// The first mistake that was found; "" for none.
std::string gpu_mistake();
/// Whether calls of CUDA that ask for the state of an event return.
void stall_driver(bool stalled);
/// Communicators report an error of another rank from now on.
void break_communicators(bool broken);
/// Communicators that were given up (ncclCommAbort) since set_gpus.
int aborted_communicators();

/// Groups of lib/comm/nccl over the imitation.
comm::DeviceGroups imitated_nccl();

}  // namespace automodel::test
