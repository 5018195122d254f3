// Checks whether a machine is ready for training: each check reports what it found and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::launch {

enum class Health : std::uint8_t { kGood, kWarning, kBad };
std::string_view name_of(Health health);  ///< "ok", "warning", "problem"

struct Finding {
  std::string_view check;  ///< "mpi", "libtorch", ...
  Health health = Health::kGood;
  std::string seen = {};
  std::string advice = {};  ///< empty if all is well
};

/// Runs every check: worker (which loads LibTorch), MPI, CUDA driver, NCCL, network, limits, memory, Slurm. Takes about
/// a second, since it starts the programs and loads the libraries that it reports on.
std::vector<Finding> examine();

}  // namespace automodel::launch
