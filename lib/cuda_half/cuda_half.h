// The CUDA half of the program: our kernels, NCCL and LibTorch's CUDA library, in a shared object next to the program
// that is loaded only if a GPU is requested. Without it the program uses LibTorch's CPU library alone.
#pragma once

#include <optional>
#include <string>

#include "base/diagnostic.h"

namespace automodel {

/// Loads it on the first call; later calls return the first result. Returns the reason if it cannot be loaded (id
/// `no-cuda-half`). Otherwise comm::nccl_groups() and ops::loaded_kernels() are its implementations from then on, and
/// LibTorch has CUDA devices. Call it before anything asks LibTorch for devices, because LibTorch caches the answer.
std::optional<Diagnostic> load_cuda_half();

/// Like load_cuda_half(), but throws the reason as an Error (kEnvironment).
void require_cuda_half();

/// Versions in the loaded half, such as "CUDA 13.0, NCCL 2.28.9"; empty if none could be loaded. Loads it if necessary.
std::string cuda_half_versions();

/// Whether `device: auto` tries to load it: this machine has an NVIDIA driver, or the environment names the file.
bool cuda_half_expected();

}  // namespace automodel
