// The order in which PyTorch's samplers visit rows: torch.randperm(n) of a CPU generator.
#pragma once

#include <cstdint>
#include <vector>

namespace automodel::data {

/// `torch.randperm(n)` after `manual_seed(seed)`: Mersenne Twister (Matsumoto and Nishimura, 1998) seeded with the low
/// 32 bits, Fisher-Yates from the front by remainders; n below 2^32 / 20, where PyTorch draws 32 bits a place.
std::vector<std::uint32_t> torch_permutation(std::uint64_t seed, std::int64_t n);

}  // namespace automodel::data
