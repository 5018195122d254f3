#include "data/python_random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

namespace automodel::data {

PythonRandom::PythonRandom(std::uint64_t seed) {
  state_[0] = 19650218;
  for (std::size_t i = 1; i < kWords; ++i)
    state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30U)) + static_cast<std::uint32_t>(i);
  std::vector<std::uint32_t> key = {static_cast<std::uint32_t>(seed)};
  if (const auto high = static_cast<std::uint32_t>(seed >> 32U); high != 0) key.push_back(high);
  std::size_t i = 1;
  const auto mixed = [&](std::uint32_t factor) {
    return state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30U)) * factor);
  };
  const auto go_on = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  for (std::size_t k = 0; k < std::max(kWords, key.size()); ++k, go_on()) {
    const auto word = k % key.size();
    state_[i] = mixed(1664525U) + key[word] + static_cast<std::uint32_t>(word);
  }
  for (std::size_t k = 0; k + 1 < kWords; ++k, go_on()) state_[i] = mixed(1566083941U) - static_cast<std::uint32_t>(i);
  state_[0] = 0x80000000U;
}

std::uint32_t PythonRandom::next() {
  constexpr std::size_t kDistance = 397;
  if (at_ == kWords) {
    for (std::size_t i = 0; i < kWords; ++i) {
      const auto joined = (state_[i] & 0x80000000U) | (state_[(i + 1) % kWords] & 0x7FFFFFFFU);
      state_[i] = state_[(i + kDistance) % kWords] ^ (joined >> 1U) ^ ((joined & 1U) != 0 ? 0x9908B0DFU : 0U);
    }
    at_ = 0;
  }
  auto out = state_[at_++];
  out ^= out >> 11U;
  out ^= (out << 7U) & 0x9D2C5680U;
  out ^= (out << 15U) & 0xEFC60000U;
  return out ^ (out >> 18U);
}

double PythonRandom::uniform() {
  const double high = next() >> 5U, low = next() >> 6U;
  return (high * 0x1p26 + low) / 0x1p53;
}

double PythonRandom::gauss(double mean, double deviation) {
  auto normal = std::exchange(waiting_, std::nullopt);
  if (!normal) {
    const double angle = uniform() * (2 * std::numbers::pi);
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    normal = std::cos(angle) * radius;
    waiting_ = std::sin(angle) * radius;
  }
  return mean + *normal * deviation;
}

std::int64_t PythonRandom::choice(std::int64_t count) {
  return static_cast<std::int64_t>(std::floor(uniform() * static_cast<double>(count)));
}

}  // namespace automodel::data
