// Ranks as processes under mpirun or srun; MPI carries the messages.
#pragma once

#include <memory>

#include "comm/world.h"

namespace automodel::comm {

/// Initialises MPI; once per process. Throws Error (kEnvironment) if MPI does not support calls from several threads in
/// turn; ends the job if the device is missing.
std::unique_ptr<World> open_mpi(const WorldOptions& options, DeviceGroups device_groups = {});

}  // namespace automodel::comm
