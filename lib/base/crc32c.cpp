#include "base/crc32c.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "base/crc32c_register.h"
#include "base/processor.h"

namespace automodel {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78U;  // bits reflected: the highest power of x is bit 0

/// kTables[k][b]: contribution of byte b to the register after k further bytes.
constexpr std::array<std::array<std::uint32_t, 256>, 8> kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::uint32_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = tables[0][tables[k - 1][byte] & 0xFFU] ^ (tables[k - 1][byte] >> 8);
  return tables;
}();

/// a * b modulo the CRC polynomial, over GF(2).
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 1U << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1U) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

/// kPowers[k] = x^(8 * 2^k): the factor by which 2^k zero bytes multiply the register.
constexpr std::array<std::uint32_t, 64> kPowers = [] {
  std::array<std::uint32_t, 64> powers{};
  powers[0] = 1U << 23;  // x^8
  for (std::size_t k = 1; k < powers.size(); ++k) powers[k] = multiply(powers[k - 1], powers[k - 1]);
  return powers;
}();

/// The register after `zeros` zero bytes.
std::uint32_t after_zeros(std::uint32_t state, std::uint64_t zeros) {
  for (std::size_t k = 0; zeros != 0; ++k, zeros >>= 1)
    if ((zeros & 1U) != 0) state = multiply(kPowers[k], state);
  return state;
}

std::uint64_t little_endian_word(const char* bytes) {
  std::uint64_t word = 0;
  for (int i = 7; i >= 0; --i) word = (word << 8) | static_cast<unsigned char>(bytes[i]);
  return word;
}

}  // namespace

namespace detail {

std::uint32_t crc32c_by_table(std::uint32_t state, const char* bytes, std::size_t size) {
  for (; size >= 8; bytes += 8, size -= 8) {
    const std::uint64_t word = little_endian_word(bytes) ^ state;
    state = 0;
    for (std::size_t k = 0; k < 8; ++k) state ^= kTables[7 - k][(word >> (8 * k)) & 0xFFU];
  }
  for (; size > 0; ++bytes, --size)
    state = kTables[0][(state ^ static_cast<unsigned char>(*bytes)) & 0xFFU] ^ (state >> 8);
  return state;
}

}  // namespace detail

namespace {

std::uint32_t after_bytes(std::uint32_t state, std::string_view bytes) {
  return (processor().crc32 ? detail::crc32c_by_instruction : detail::crc32c_by_table)(state, bytes.data(),
                                                                                       bytes.size());
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes, std::uint32_t checksum) {
  return ~after_bytes(~checksum, bytes);
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

void PiecewiseCrc32c::add(std::uint64_t offset, std::string_view bytes) {
  const std::uint32_t own = after_bytes(0, bytes);
  state_ ^= after_zeros(own, size_ - (offset + bytes.size()));
}

std::uint32_t PiecewiseCrc32c::value() const {
  return ~(state_ ^ after_zeros(0xFFFFFFFFU, size_));
}

std::string checksum_text(std::uint32_t checksum) {
  return fmt::format("0x{:08x}", checksum);
}

bool parse_checksum(std::string_view text, std::uint32_t& checksum) {
  if (text.size() != 10 || !text.starts_with("0x")) return false;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), checksum, 16);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace automodel
