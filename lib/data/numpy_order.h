// The order in which `datasets.Dataset.shuffle(seed)` puts rows: numpy's default_rng(seed).permutation(n).
#pragma once

#include <cstdint>
#include <vector>

namespace automodel::data {

/// PCG64 seeded through SeedSequence (O'Neill, 2014 and 2015), then Fisher-Yates from the end; n below 2^32.
std::vector<std::int64_t> numpy_permutation(std::uint64_t seed, std::int64_t n);

}  // namespace automodel::data
