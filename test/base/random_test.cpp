#include "base/random.h"

#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace automodel {
namespace {

using Words = std::array<std::uint32_t, 4>;

/// A hash of many words (FNV-1a, one word at a time).
struct Digest {
  std::uint64_t hash = 0xCBF29CE484222325U;
  void add(std::uint32_t word) { hash = (hash ^ word) * 0x100000001B3U; }
  void add(const std::vector<float>& values) {
    for (const float value : values) add(std::bit_cast<std::uint32_t>(value));
  }
};

}  // namespace

TEST_CASE("Philox4x32-10 matches Random123's published test vectors", "[base]") {
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a random element does not depend on the range that it is generated with", "[base]") {
  const RandomStream stream(7, "model.layers.0.mlp.up_proj.weight");
  const std::size_t size = 1500;
  std::vector<float> whole(size);
  stream.fill_normal(0, whole, 0.5, 0.02);
  for (std::size_t i = 0; i < size; ++i) REQUIRE(whole[i] == static_cast<float>(0.5 + 0.02 * stream.normal(i)));
  for (const std::size_t first : {0U, 1U, 2U, 3U, 4U, 255U, 256U, 257U, 700U}) {
    for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 255U, 256U, 257U, 513U}) {
      std::vector<float> part(count);
      stream.fill_normal(first, part, 0.5, 0.02);
      for (std::size_t i = 0; i < count; ++i) REQUIRE(part[i] == whole[first + i]);
      stream.fill_uniform(first, part);
      for (std::size_t i = 0; i < count; ++i) REQUIRE(part[i] == stream.uniform(first + i));
    }
  }
}

TEST_CASE("32-bit and 64-bit random words come from the same blocks", "[base]") {
  const RandomStream stream(7, "s");
  for (std::uint64_t i = 0; i < 100; ++i)
    CHECK(stream.bits64(i) == (std::uint64_t{stream.bits32(2 * i + 1)} << 32 | stream.bits32(2 * i)));
  CHECK(stream.bits64(std::uint64_t{1} << 40) != stream.bits64(0));
}

TEST_CASE("random streams that differ in seed, name or index give different numbers", "[base]") {
  std::set<std::uint64_t> seen;
  int count = 0;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32})
    for (const char* name : {"", "a", "b", "ab", "model.layers.1.w", "model.layers.10.w"})
      for (std::uint64_t i = 0; i < 100; ++i, ++count) seen.insert(RandomStream(seed, name).bits64(i));
  CHECK(seen.size() == static_cast<std::size_t>(count));
}

TEST_CASE("normal and uniform random numbers are bit-identical on every machine", "[base]") {
  // Recorded with g++ 12 -O0 and checked with clang 14 and with AVX2 and AVX-512 code.
  const RandomStream stream(42, "golden");
  std::vector<float> values(1 << 20);
  Digest normals;
  stream.fill_normal(3, values, 0.0, 0.02);
  normals.add(values);
  CHECK(normals.hash == 0xf1e95f0fc669a77aU);
  Digest uniforms;
  stream.fill_uniform(3, values);
  uniforms.add(values);
  CHECK(uniforms.hash == 0x5fdf2d0063cd8c43U);
  Digest doubles;  // all bits, which a fused multiply-add would change
  for (std::uint64_t i = 0; i < 4096; ++i) {
    const auto bits = std::bit_cast<std::uint64_t>(stream.normal(i));
    doubles.add(static_cast<std::uint32_t>(bits));
    doubles.add(static_cast<std::uint32_t>(bits >> 32));
  }
  CHECK(doubles.hash == 0xc2e09465792b9d47U);
}

TEST_CASE("normal random numbers match the Box-Muller formula computed with the C library", "[base]") {
  const RandomStream stream(1, "n");
  double worst = 0;
  for (std::uint64_t i = 0; i < 20000; i += 2) {
    const long double u = (static_cast<long double>(stream.bits32(i)) + 0.5L) * 0x1p-32L;
    const long double angle =
        6.283185307179586476925286766559L * static_cast<long double>(stream.bits32(i + 1)) * 0x1p-32L;
    const long double r = std::sqrt(-2.0L * std::log(u));
    worst = std::max(worst, static_cast<double>(std::fabs(r * std::cos(angle) - stream.normal(i))));
    worst = std::max(worst, static_cast<double>(std::fabs(r * std::sin(angle) - stream.normal(i + 1))));
  }
  CHECK(worst < 4e-15);
}

TEST_CASE("normal random numbers have the moments and tails of a normal distribution", "[base]") {
  const std::size_t size = 4'000'000;
  std::vector<float> z(size);
  RandomStream(3, "moments").fill_normal(0, z);
  double sums[5] = {};
  double neighbours = 0;
  std::size_t beyond_2 = 0;
  std::size_t beyond_4 = 0;
  for (std::size_t i = 0; i < size; ++i) {
    double power = 1;
    for (double& sum : sums) {
      sum += power;
      power *= z[i];
    }
    if (i > 0) neighbours += static_cast<double>(z[i]) * z[i - 1];
    beyond_2 += std::fabs(z[i]) > 2 ? 1 : 0;
    beyond_4 += std::fabs(z[i]) > 4 ? 1 : 0;
  }
  const double n = static_cast<double>(size);
  CHECK(std::fabs(sums[1] / n) < 5 / std::sqrt(n));
  CHECK(std::fabs(sums[2] / n - 1) < 5 * std::sqrt(2 / n));
  CHECK(std::fabs(sums[3] / n) < 5 * std::sqrt(15 / n));
  CHECK(std::fabs(sums[4] / n - 3) < 5 * std::sqrt(96 / n));
  CHECK(std::fabs(neighbours / n) < 5 / std::sqrt(n));
  CHECK(std::fabs(static_cast<double>(beyond_2) - n * 0.04550026) < 5 * std::sqrt(n * 0.0455));
  CHECK(std::fabs(static_cast<double>(beyond_4) - n * 6.334248e-5) < 5 * std::sqrt(n * 6.33e-5));
}

TEST_CASE("uniform random numbers fill the unit interval evenly and are always below 1", "[base]") {
  std::vector<float> u(1 << 20);
  RandomStream(3, "uniform").fill_uniform(0, u);
  std::array<int, 64> bins{};
  for (const float x : u) {
    REQUIRE((x >= 0.0F && x < 1.0F));
    ++bins[static_cast<std::size_t>(x * 64)];
  }
  double chi = 0;
  for (const int count : bins) chi += std::pow(count - 16384.0, 2) / 16384.0;
  CHECK(chi < 63 + 5 * std::sqrt(2 * 63.0));
}

TEST_CASE("bounded random integers are uniform, and are the high half of a product", "[base]") {
  const RandomStream stream(9, "below");
  std::array<int, 7> counts{};
  for (std::uint64_t i = 0; i < 70000; ++i) ++counts[stream.below(i, 7)];
  for (const int count : counts) CHECK(std::abs(count - 10000) < 500);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t bound = stream.bits64(i) | 1;
    CHECK(stream.below(i, bound) < bound);
  }
  CHECK(stream.below(0, 1) == 0);
  CHECK(stream.below(5, std::uint64_t{1} << 32) == stream.bits64(5) >> 32);
  CHECK(stream.below(5, std::uint64_t{1} << 63) == stream.bits64(5) >> 1);
}

}  // namespace automodel
