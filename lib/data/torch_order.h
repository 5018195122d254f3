// The order in which PyTorch's samplers visit rows: torch.randperm(n) with a CPU generator.
#pragma once

#include <cstdint>
#include <vector>

namespace automodel::data {

/// `torch.randperm(n)` after `manual_seed(seed)`: a Mersenne Twister (Matsumoto and Nishimura, 1998) seeded with the
/// low 32 bits, then Fisher-Yates from the front using remainders; for n below 2^32 / 20, where PyTorch draws 32 bits
/// per element.
std::vector<std::uint32_t> torch_permutation(std::uint64_t seed, std::int64_t n);

}  // namespace automodel::data
