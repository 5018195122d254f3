// Measures each rank's CPU, memory and links: `automodel doctor --ranks`.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"

namespace automodel::train {

struct RankSample {
  std::string host = {};
  double flops = 0;   ///< per second, in matrix multiplications
  double memory = 0;  ///< bytes per second, read plus written by a copy
  double link = 0;    ///< bytes per second in both directions together, with the better of two neighbours; 0: no
                      ///< other rank
};

/// Collective; all ranks work at the same time, as in training. With several hosts, links are measured between ranks
/// with the same local number on different hosts. Rank 0 gets the samples, the others nothing.
std::vector<RankSample> measure_ranks(comm::World& world);

/// For each rank, in which of "compute", "memory", "links" it is slower than the median by a factor of more than
/// kOutlierFactor.
inline constexpr double kOutlierFactor = 1.5;
std::vector<std::vector<std::string>> outliers(const std::vector<RankSample>& samples);

std::string to_text(const std::vector<RankSample>& samples);
std::string to_json(const std::vector<RankSample>& samples);

/// Measures, and prints on rank 0. Returns kEnvironment if any rank is an outlier.
ExitCode run_rank_meter(comm::World& world, bool json);

}  // namespace automodel::train
