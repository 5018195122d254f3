// Ranks as processes under mpirun or srun; messages carried by MPI.
#pragma once

#include <functional>
#include <memory>

#include "comm/world.h"

namespace automodel::comm {

/// Makes, of the group that carries host tensors, the one that a device's backend offers.
using DeviceGroups = std::function<std::shared_ptr<Communicator>(World&, std::shared_ptr<HostCommunicator>)>;

/// Initialises MPI; once a process. Throws Error (kEnvironment) where MPI cannot be used from several threads in turn;
/// ends the job where the device is missing.
std::unique_ptr<World> open_mpi(const WorldOptions& options, DeviceGroups device_groups = {});

}  // namespace automodel::comm
