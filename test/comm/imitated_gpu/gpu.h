// An imitation of CUDA streams and NCCL for ranks that are threads of one process; lib/comm/nccl compiles against it.
//
// The imitated GPU computes immediately and on the host: a thread is its own current stream, and its tensors are host
// tensors. Other streams are threads that run their tasks in order, each after a random delay. Mistakes show because:
//
// - an operation copies its input and fills its output with NaN at launch, and begins only later: reading the output
//   without waiting gives NaN, and a write to either buffer is found when the operation begins;
// - an operation whose stream does not wait for earlier work on the current stream is found at launch;
// - both sides of a message must meet: a send ends only when it is received;
// - the first message of a pair blocks both hosts until both have arrived, as NCCL's connections do, and so does the
//   first collective of each kind in a communicator, unless NCCL_RUNTIME_CONNECT=0;
// - an abort frees its communicator: calls that are inside it, or use it later, are found;
// - the last error stays until it is asked for, and is found at the next launch.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "comm/world.h"

namespace automodel::test {

struct GpuBehaviour {
  std::uint64_t seed = 1;
  std::chrono::microseconds most_delay{200};  ///< before an operation begins
  bool one_gpu = false;                       ///< shared by all ranks
  int nccl_version = 22809;                   ///< as ncclGetVersion reports it
  std::chrono::milliseconds longest{60'000};  ///< for a call that waits for other hosts
};
/// Sets the behaviour of everything created from now on, and forgets the mistakes found.
void set_gpus(const GpuBehaviour& behaviour);
/// The first mistake that was found; "" for none.
std::string gpu_mistake();
/// While stalled, CUDA calls that query an event do not return.
void stall_driver(bool stalled);
/// Communicators report an error of another rank from now on.
void break_communicators(bool broken);
/// Number of communicators aborted (ncclCommAbort) since set_gpus.
int aborted_communicators();
/// Since set_gpus: the buffers for messages that have been set up, as many as CTAs for each sender of a receiver.
int message_buffers();

/// Groups of lib/comm/nccl over the imitation.
comm::DeviceGroups imitated_nccl();

}  // namespace automodel::test
