// A recipe's settings of the machine: the device and its kernels, the communication backend, the timeout of waits.
#pragma once

#include <optional>
#include <string_view>

#include "base/diagnostic.h"
#include "comm/world.h"
#include "config/recipe.h"

namespace automodel::train {

/// Applies the recipe's `device` and `dist_env` to `world`; called by all ranks before the first group is made.
/// `device: auto` is CUDA if every rank has a CUDA device. The program's CUDA half (cuda_half/cuda_half.h) is loaded
/// for `device: cuda`, and for `auto` if there is a driver. Without `dist_env.backend`, GPUs communicate over NCCL if
/// every rank of a host has a GPU of its own, otherwise through MPI and host memory; `gloo` names the CPU backend,
/// which is MPI, and host tensors always travel through it. With `model_parallel.deterministic_mode`, PyTorch uses only
/// kernels with bitwise reproducible results, in the whole process. Throws Error (kEnvironment, id `no-cuda-half`,
/// `no-device` or `backend-unavailable`; kBadInput, id `unknown-backend`). Returns a warning that says why, if `device:
/// auto` chose the CPU although some host has an NVIDIA driver.
std::optional<Diagnostic> use_settings(comm::World& world, const config::Recipe& recipe);

/// That warning, for a job in which `without` of `ranks` ranks see no device. `lack` says why a rank has no CUDA half,
/// `driver` is the line of a host that has a driver; either may be empty.
Diagnostic cpu_chosen(std::string_view lack, std::string_view driver, int without, int ranks);

/// Sets the number of compute threads to estimate::threads_of_rank: this rank's share of the cores; OMP_NUM_THREADS
/// takes precedence.
void use_threads(const comm::World& world);

}  // namespace automodel::train
