#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace automodel {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

constexpr std::uint64_t kRootHalf = 0x3FE6A09E667F3BCDU;  // the bits of sqrt(1/2)
constexpr double kLn2 = 0.6931471805599453;
constexpr double kStep = 1.4629180792671596e-09;  // 2 pi / 2^32

/// Blocks computed together, stored word-major so that the loops over lanes vectorise.
constexpr std::size_t kLanes = 64;
template <class T>
using Words = std::array<std::array<T, kLanes>, 4>;

/// One Philox round on `lanes` counters.
inline void philox_round(Words<std::uint32_t>& c, std::uint32_t key0, std::uint32_t key1, std::size_t lanes) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * c[0][l];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * c[2][l];
    c[0][l] = static_cast<std::uint32_t>(product1 >> 32) ^ c[1][l] ^ key0;
    c[2][l] = static_cast<std::uint32_t>(product0 >> 32) ^ c[3][l] ^ key1;
    c[1][l] = static_cast<std::uint32_t>(product1);
    c[3][l] = static_cast<std::uint32_t>(product0);
  }
}

/// Blocks first ... first + lanes - 1 of a stream.
inline void philox_blocks(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::size_t lanes,
                          Words<std::uint32_t>& c) {
  for (std::size_t l = 0; l < lanes; ++l) {
    c[0][l] = static_cast<std::uint32_t>(first + l);
    c[1][l] = static_cast<std::uint32_t>((first + l) >> 32);
    c[2][l] = static_cast<std::uint32_t>(stream);
    c[3][l] = static_cast<std::uint32_t>(stream >> 32);
  }
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
    philox_round(c, key0, key1, lanes);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

/// Exact conversion, written so that it vectorises with SSE2, which converts only signed integers.
inline double to_double(std::uint32_t x) {
  return static_cast<double>(static_cast<std::int32_t>(x ^ 0x80000000U)) + 0x1p31;
}

/// sqrt(-2 ln u) for u = (x + 1/2) / 2^32. Relative error below 1e-15.
inline double radius(std::uint32_t x) {
  const double odd = 2.0 * to_double(x) + 1.0;  // u = odd / 2^33, exactly
  // odd = m * 2^k with m in [sqrt(1/2), sqrt(2)).
  const auto bits = std::bit_cast<std::uint64_t>(odd);
  const std::uint64_t k = (bits - kRootHalf) >> 52;
  const auto m = std::bit_cast<double>(bits - (k << 52));
  const double exponent = std::bit_cast<double>(k | 0x4330000000000000U) - 0x1p52;  // k as a double
  // ln m = 2 atanh(s); atanh(s) / s as a minimax polynomial of s^2, error 1.7e-16 (Remez).
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 0.08419354467551898;
  p = p * z + 0.09060921479346995;
  p = p * z + 0.11111718768859644;
  p = p * z + 0.14285707988039473;
  p = p * z + 0.2000000003102391;
  p = p * z + 0.3333333333327608;
  p = p * z + 1.0;
  const double ln = (exponent - 33.0) * kLn2 + 2.0 * s * p;
  return std::sqrt(-2.0 * ln);
}

/// Cosine and sine of 2 pi y / 2^32. Absolute error below 3e-16.
inline void turn(std::uint32_t y, double& cosine, double& sine) {
  const std::uint32_t quarter = (y + 0x20000000U) >> 30;  // the nearest quarter turn; the rest is in [-1/8, 1/8) turn
  const auto rest = static_cast<std::int32_t>(y - (quarter << 30));
  const double a = static_cast<double>(rest) * kStep;
  const double z = a * a;
  double p = 1.5894122293035047e-10;  // minimax polynomials of z = a^2, errors 3e-18 and 6e-17 (Remez)
  p = p * z - 2.5050705608004196e-08;
  p = p * z + 2.755731329751186e-06;
  p = p * z - 0.00019841269828397797;
  p = p * z + 0.008333333333319997;
  p = p * z - 0.16666666666666616;
  p = a + a * (z * p);
  double q = 2.0627421582169303e-09;
  q = q * z - 2.7555177531770653e-07;
  q = q * z + 2.480157814549037e-05;
  q = q * z - 0.0013888888868713175;
  q = q * z + 0.041666666666453855;
  q = q * z - 0.4999999999999915;
  q = q * z + 1.0;
  // Quarter 0: (q, p), 1: (-p, q), 2: (-q, -p), 3: (p, -q).
  const std::uint64_t swap = 0U - std::uint64_t{quarter & 1U};  // all ones or none
  const auto p_bits = std::bit_cast<std::uint64_t>(p);
  const auto q_bits = std::bit_cast<std::uint64_t>(q);
  const std::uint64_t differ = (p_bits ^ q_bits) & swap;
  const std::uint64_t cosine_sign = std::uint64_t{(quarter + 1U) & 2U} << 62;
  const std::uint64_t sine_sign = std::uint64_t{quarter & 2U} << 62;
  cosine = std::bit_cast<double>((q_bits ^ differ) ^ cosine_sign);
  sine = std::bit_cast<double>((p_bits ^ differ) ^ sine_sign);
}

/// Words 2 p and 2 p + 1 of each block give its normals 2 p and 2 p + 1.
inline void box_muller(const Words<std::uint32_t>& c, std::size_t lanes, Words<double>& out) {
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    for (std::size_t l = 0; l < lanes; ++l) {
      double cosine = 0;
      double sine = 0;
      turn(c[pair + 1][l], cosine, sine);
      const double r = radius(c[pair][l]);
      out[pair][l] = r * cosine;
      out[pair + 1][l] = r * sine;
    }
  }
}

inline float to_uniform(std::uint32_t x) {
  return static_cast<float>(static_cast<std::int32_t>(x >> 8)) * 0x1p-24F;
}

/// Calls write(words, skip, count, j) for runs of whole kLanes blocks that cover elements first ... first + size - 1:
/// elements skip ... skip + count - 1 of the run are out[j] and so on.
template <class Write>
void for_each_run(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::size_t size, const Write& write) {
  Words<std::uint32_t> words;
  for (std::size_t done = 0; done < size;) {
    const std::uint64_t element = first + done;
    const auto skip = static_cast<std::size_t>(element % 4);
    const std::size_t count = std::min(4 * kLanes - skip, size - done);
    philox_blocks(seed, stream, element / 4, kLanes, words);
    write(words, skip, count, done);
    done += count;
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  Words<std::uint32_t> c;
  for (std::size_t word = 0; word < 4; ++word) c[word][0] = counter[word];
  for (int round = 0; round < kRounds; ++round) {
    philox_round(c, key[0], key[1], 1);
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return {c[0][0], c[1][0], c[2][0], c[3][0]};
}

std::uint64_t stream_hash(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCDU;
  hash = (hash ^ (hash >> 33)) * 0xC4CEB9FE1A85EC53U;
  return hash ^ (hash >> 33);
}

std::array<std::uint32_t, 4> RandomStream::block(std::uint64_t index) const {
  return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                     static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                    {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
}

std::uint32_t RandomStream::bits32(std::uint64_t index) const {
  return block(index / 4)[index % 4];
}

std::uint64_t RandomStream::bits64(std::uint64_t index) const {
  const auto words = block(index / 2);
  const std::size_t low = 2 * (index % 2);
  return std::uint64_t{words[low + 1]} << 32 | words[low];
}

std::uint64_t RandomStream::below(std::uint64_t index, std::uint64_t bound) const {
  // High half of a 64 x 64-bit product, from 32-bit halves since there is no portable 128-bit integer.
  const std::uint64_t bits = bits64(index);
  const std::uint64_t high = (bits >> 32) * (bound >> 32);
  const std::uint64_t middle0 = (bits >> 32) * (bound & 0xFFFFFFFFU);
  const std::uint64_t middle1 = (bits & 0xFFFFFFFFU) * (bound >> 32);
  const std::uint64_t low = (bits & 0xFFFFFFFFU) * (bound & 0xFFFFFFFFU);
  const std::uint64_t carry = ((middle0 & 0xFFFFFFFFU) + (middle1 & 0xFFFFFFFFU) + (low >> 32)) >> 32;
  return high + (middle0 >> 32) + (middle1 >> 32) + carry;
}

float RandomStream::uniform(std::uint64_t index) const {
  return to_uniform(bits32(index));
}

double RandomStream::normal(std::uint64_t index) const {
  const auto words = block(index / 4);
  const std::size_t pair = index % 4 / 2 * 2;
  double cosine = 0;
  double sine = 0;
  turn(words[pair + 1], cosine, sine);
  return radius(words[pair]) * (index % 2 == 0 ? cosine : sine);
}

void RandomStream::fill_uniform(std::uint64_t first, std::span<float> out) const {
  for_each_run(seed_, stream_, first, out.size(),
               [&](const Words<std::uint32_t>& words, std::size_t skip, std::size_t count, std::size_t j) {
                 for (std::size_t i = 0; i < count; ++i) out[j + i] = to_uniform(words[(skip + i) % 4][(skip + i) / 4]);
               });
}

void RandomStream::fill_normal(std::uint64_t first, std::span<float> out, double mean, double deviation) const {
  Words<double> normals;
  std::array<float, 4 * kLanes> run;
  for_each_run(seed_, stream_, first, out.size(),
               [&](const Words<std::uint32_t>& words, std::size_t skip, std::size_t count, std::size_t j) {
                 box_muller(words, kLanes, normals);
                 for (std::size_t l = 0; l < kLanes; ++l)
                   for (std::size_t word = 0; word < 4; ++word)
                     run[4 * l + word] = static_cast<float>(mean + deviation * normals[word][l]);
                 std::copy_n(run.begin() + static_cast<std::ptrdiff_t>(skip), count,
                             out.begin() + static_cast<std::ptrdiff_t>(j));
               });
}

}  // namespace automodel
